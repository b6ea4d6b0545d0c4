"""The scorer ``exact``: is a short answer the expected text, in another way to write it?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from experiences.rollouts.environments.answers import MarkedAnswer, comparable, without_latex_text
from experiences.rollouts.environments.choices import choice_in
from experiences.rollouts.environments.days import date_in, month_in, time_in
from experiences.rollouts.environments.number_reading import NumberReading, reading_of, same_reading
from experiences.rollouts.environments.number_words import is_number, with_digits
from experiences.rollouts.environments.sentences import answers_in, first_line_in
from experiences.rollouts.environments.short_answers import is_polar, items_in, letters_in, shortened
from experiences.rollouts.environments.structured import call_in, data_in
from experiences.rollouts.environments.verdicts import several, target_of, verdict
from experiences.rollouts.types import Outcome

_DIGIT: Final = re.compile(r"\d")
_LETTER: Final = re.compile(r"[^\W\d_]")
# A number with its noun behind it, "72 clips"; what is before it may make it another thing's name.
_BEGINS: Final = re.compile(
    r"(?:(?:in|about|around|approximately|exactly|roughly|the year|it is|it's|it was) )*[^\w]*\d"
)
_CODE: Final = re.compile(r"0\d|\d+\.\d+\.\d")  # a number with zeros before it names something, and so does a version
_CHOICE: Final = re.compile(r"[A-Ja-j]")  # of a question with choices
_IT_IS: Final = re.compile(r"^it(?:'s| is) ")
_ARTICLE: Final = re.compile(r"^(?:the|an?) (?=\S\S)(?=.*[^\W\d_])")
_PAIR: Final = re.compile(r"(\d{1,4})(?: ?[-:] ?| to )(\d{1,4})")
_INITIALS: Final = re.compile(r"\b[a-z]\.|, (?:jr|sr)\b|^(?:dr|mr|mrs|ms|prof|st)\b")
_TITLE: Final = re.compile(r"^(?:dr|mr|mrs|ms|prof|professor|sir) (?=\S+ \S)")
_SPACED: Final = re.compile(r"(?<=\b[a-z]) (?=[a-z]\b)")  # between initials
_POLAR: Final = frozenset({"yes", "no", "true", "false"})


def exact(expected: Mapping[str, Any], case_sensitive: bool) -> Callable[[str], Outcome]:
    """The answer is the expected text (or one of several) as ``comparable`` writes both; where the text is a number,
    that number in another form."""
    target = target_of(expected, "answer")
    wanted = _Wanted(several(target), case_sensitive)
    return lambda answer: verdict(wanted.is_given_by(answer), "exact", answer, target)


class _Wanted:
    """The expected texts, and what they are besides texts: days, numbers, lists, letters, data."""

    def __init__(self, texts: list[str], case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self.texts = {self._comparable(text) for text in texts}
        self.plain = {comparable(text) for text in texts}
        self.choices = {text.strip().casefold() for text in texts if _CHOICE.fullmatch(text.strip())}
        self.polar = self.plain & _POLAR
        self.days = {day for text in self.plain if (day := date_in(text)) is not None}
        self.times = {time for text in self.plain if (time := time_in(text)) is not None}
        self.months = {month for text in self.plain if (month := month_in(text)) is not None}
        self.pairs = {pair for text in self.plain if not self.times and (pair := _pair_in(text))}
        self.names = {name for text in self.plain if (name := _name_in(text))}
        self.lists = [] if case_sensitive else [items for text in texts if (items := items_in(text))]
        self.letters = {found for text in texts if (found := letters_in(text))}
        self.data = [value for text in texts if (value := data_in(text)) is not None]
        self.unmarked = set() if case_sensitive else {one for text in texts if (one := _without_marks(text))}
        self._written = [text for text in texts if _names_number(text, in_words=not case_sensitive)]

    @cached_property
    def numbers(self) -> list[NumberReading]:
        return [number for number in map(reading_of, self._written) if number is not None]

    def _comparable(self, text: str) -> str:
        return comparable(text, case_sensitive=self._case_sensitive)

    def is_given_by(self, answer: str) -> bool:
        said = self._comparable(answer)
        if said in self.texts or any(self._comparable(one) in self.texts for one in shortened(answer)):
            return True
        if not _DIGIT.search(said) and _IT_IS.sub("", said) in self.texts:
            return True
        return self._is_in_words(answer, comparable(answer)) or self._is_as_data(answer)

    def _is_in_words(self, answer: str, said: str) -> bool:
        if self.choices:
            first, _, rest = without_latex_text(answer).strip().partition("\n")
            found = choice_in(comparable(without_latex_text(answer)), comparable(first), comparable(rest))
            if found:
                return found in self.choices
        first = first_line_in(answer)
        if any(_is_polar(one, said, first, short=isinstance(answer, MarkedAnswer)) for one in self.polar):
            return True
        if self._is_time(said) or (self.pairs and _pair_in(said) in self.pairs):
            return True
        if self._case_sensitive:
            return False
        if self._is_text(said) or any(self._is_text(comparable(one)) for one in (*shortened(answer), first) if one):
            return True
        return not self.polar and any(
            self._is_text(comparable(one))
            for one in answers_in(said)
            if _LETTER.search(one)  # numbers are read as such
        )

    def _is_text(self, said: str) -> bool:
        """True if this is an expected text, apart from an article or the accents of a name."""
        bare = _ARTICLE.sub("", said if _DIGIT.search(said) else _IT_IS.sub("", said))
        if self.names and _TITLE.sub("", _squeezed(bare)) in self.names:
            return True
        if (name := _name_in(bare)) and name in self.articleless:
            return True
        return bare in self.articleless or (bare.isascii() and bare in self.unmarked)

    def _is_time(self, said: str) -> bool:
        if self.days and date_in(said) in self.days:
            return True
        if self.months and month_in(said) in self.months:
            return True
        return bool(self.times) and time_in(said) in self.times

    @cached_property
    def articleless(self) -> set[str]:
        return {_ARTICLE.sub("", text) for text in self.plain}

    def _is_as_data(self, answer: str) -> bool:
        if self.lists and any(_same_items(items, items_in(answer)) for items in self.lists):
            return True
        if self.letters and letters_in(answer) in self.letters:
            return True
        if self.data and (data_in(answer) in self.data or call_in(answer) in self.data):
            return True
        return bool(self._written) and self._is_number(answer)

    def _is_number(self, answer: str) -> bool:
        found = reading_of(answer)
        if found is None or not found.alone or found.unclear:
            return False
        begins = found.bare or _BEGINS.match(comparable(with_digits(answer)))
        for number in self.numbers:
            named = number.unit == found.unit != "" and number.alone
            if ((number.bare and begins) or (named and not found.bare)) and same_reading(number, found):
                return True
            if number.alone and found.unit and same_reading(number, found) and number.unit in ("dollar", "cent"):
                return True
        return False


def _names_number(text: str, *, in_words: bool) -> bool:
    return bool(_DIGIT.search(text) and not _CODE.match(text)) or (in_words and is_number(text))


def _is_polar(wanted: str, said: str, first: str, *, short: bool) -> bool:
    if first and is_polar(wanted, comparable(first), short=True):  # no other one in what explains it
        said = said.replace(comparable(first), f"{comparable(first)}.", 1)
    return is_polar(wanted, said, short=short)


def _pair_in(text: str) -> tuple[str, str] | None:
    """Both numbers of a score or a ratio, "24-17", "3 to 2"; None for other texts."""
    found = _PAIR.fullmatch(text)
    return None if found is None else (found[1], found[2])


def _name_in(text: str) -> str:
    """A name with initials or a title, without them as far as people leave them out; "" for other texts."""
    return _TITLE.sub("", _squeezed(text)) if _INITIALS.search(text) and not _DIGIT.search(text) else ""


def _squeezed(text: str) -> str:
    return _SPACED.sub("", re.sub(r"[.,]", "", text))


def _without_marks(text: str) -> str:
    """A name without its accents, ``comparable``; "" where there are none, or they may distinguish two words."""
    if text.isascii() or not all(word.isascii() or word[:1].isupper() for word in text.split()):
        return ""
    bare = "".join(one for one in unicodedata.normalize("NFD", text) if not unicodedata.combining(one))
    return _ARTICLE.sub("", comparable(bare)) if bare.isascii() else ""


def _same_items(wanted: list[str], said: list[str]) -> bool:
    """True if two lists have equal items in the same order. Two forms of one number are equal."""
    if len(wanted) != len(said):
        return False
    for one, other in zip(wanted, said, strict=True):
        number, found = (reading_of(text) if _DIGIT.search(text) else None for text in (one, other))
        same = number is not None and found is not None and number.bare and found.bare and same_reading(number, found)
        if one != other and not same:
            return False
    return True
