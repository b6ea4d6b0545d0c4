"""Rules for a lesson before it enters a context: short, general, and not the answer of a query
(docs/algorithms.md#guards-of-lessons)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_WORDS: Final = 32
MAX_CHARACTERS: Final = 400
LEAK_WORDS: Final = 5  # so many words in a row from a query are a quotation and not a lesson
SHORTEST_ANSWER: Final = 3  # shorter answers are in too many innocent sentences
LONG_ANSWER: Final = 6  # letters from which an answer is found inside of other words
SHARED_QUERIES: Final = 3
SHARED_PART: Final = 0.02
SHARED_NUMBERS: Final = 0.1
COUNTED: Final = 200  # queries
COUNTED_CHARACTERS: Final = 20_000  # of a query
GIVEN: Final = "it gives the answer of the query that taught it"
_COMMON_ANSWERS: Final = frozenset({"yes", "no", "true", "false", "none", "all", "right", "wrong", "the", "and", "not"})
_NUMBER = re.compile(r"[-+]?[\d.,\s]+%?")
_WORD = re.compile(r"[\w'’-]+")
_PIECE = re.compile(r"[^\W_]+")
_THOUSANDS = re.compile(r"(?<=\d)[,' \u202f](?=\d{3}(?!\d))")

Runs = frozenset[tuple[str, ...]]
_ENDS = re.compile(r"[.!?](?:\s|$)")


@dataclass(frozen=True, slots=True)
class Shared:
    """Texts that many training queries share, so that they give none of them away: ``answers``, as the classes of a
    classification, each as most queries spell it, and ``runs`` of words, as of an instruction."""

    answers: tuple[str, ...] = ()
    runs: Runs = frozenset()

    def secret(self, answers: Iterable[str]) -> tuple[str, ...]:
        """``answers`` without the shared ones."""
        known = {same(answer) for answer in self.answers}
        return tuple(answer for answer in answers if same(answer) not in known)


@dataclass(frozen=True, slots=True)
class Source:
    """Texts that a lesson may not repeat: the query that taught it, and the right answers. ``shown``: the author of the
    lesson had read the answers, so that short ones and parts of long ones count as well. ``common``: runs of words that
    count for nothing."""

    query: str = ""
    answers: tuple[str, ...] = ()
    shown: bool = False
    common: Runs = frozenset()


def shared_by(queries: Sequence[str], answers: Sequence[Sequence[str]]) -> Shared:
    """Answers and runs of words of at least ``SHARED_QUERIES`` queries, and at least a share of ``SHARED_PART``
    (``SHARED_NUMBERS`` for an answer that is a number: small ones are often right by chance). ``answers``: of each
    query. Runs are counted in at most ``COUNTED`` queries, spread over all."""
    spelled: dict[str, Counter[str]] = defaultdict(Counter)
    for of in answers:
        for key, text in {same(text): text for text in of}.items():
            if len(key) > 1 or key.isdigit():  # a letter is the name of an option, which differs by query
                spelled[key][text] += 1
    least = {part: max(SHARED_QUERIES, math.ceil(part * len(queries))) for part in (SHARED_PART, SHARED_NUMBERS)}
    common = {
        texts.most_common(1)[0][0]: n
        for key, texts in spelled.items()
        if (n := texts.total()) >= least[SHARED_NUMBERS if _NUMBER.fullmatch(key) else SHARED_PART]
    }
    some = queries[:: max(1, len(queries) // COUNTED)]
    runs = Counter(run for query in some for run in word_runs(query[:COUNTED_CHARACTERS]))
    few = max(SHARED_QUERIES, math.ceil(SHARED_PART * len(some)))
    return Shared(
        tuple(sorted(common, key=lambda text: (-common[text], text))),
        frozenset(run for run, n in runs.items() if n >= few),
    )


def same(answer: str) -> str:
    """An answer in the form in which two are compared."""
    return " ".join(answer.split()).casefold()


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def lesson_fault(text: str, sources: Iterable[Source] = (), *, max_words: int = MAX_WORDS) -> str:
    """Why the text can't be a lesson; "" if it can. A lesson is one sentence that begins with "When"."""
    if not text.strip():
        return "it is empty"
    if "\n" in text.strip():
        return "it has several lines"
    if len(text) > MAX_CHARACTERS:
        return f"it is longer than {MAX_CHARACTERS} characters"
    if (n := len(words(text))) > max_words:
        return f"it has {n} words; {max_words} are allowed"
    if not re.match(r"when(?:ever)?\b", text.strip(), re.IGNORECASE):
        return 'it does not begin with "When"'
    if len(_ENDS.findall(text.strip())) > 1:
        return "it is more than one sentence"
    return next((why for source in sources if (why := leak(text, source))), "")


def leak(text: str, source: Source) -> str:
    """Why the text gives a query or its answer away; "" if it does not."""
    mine = _folded(text)
    if word_runs(text) & word_runs(source.query) - source.common:
        return f"it repeats {LEAK_WORDS} words of the query that taught it"
    if source.shown and any(_is_given(text, answer) for answer in source.answers):
        return GIVEN
    for answer in source.answers:
        pieces = _folded(answer)
        if pieces and len(answer.strip()) >= SHORTEST_ANSWER and not _common(pieces) and _holds(mine, pieces):
            return GIVEN
    return ""


def _is_given(text: str, answer: str) -> bool:
    """Whether a text gives an answer away that its author had read: the whole of it in any spelling, down to a number
    of one figure or an option in capitals, or five words of it in a row."""
    mine, pieces = _pieces(text), _pieces(answer)
    if not pieces or _common([piece.casefold() for piece in pieces]):
        return False
    folded, hidden = [one.casefold() for one in mine], [piece.casefold() for piece in pieces]
    if len(pieces) == 1 and len(pieces[0]) < SHORTEST_ANSWER and pieces[0].isalpha():
        return pieces[0].isupper() and pieces[0] in mine
    joined = "".join(hidden)
    written_together = len(joined) >= LONG_ANSWER and joined in "".join(folded)
    return written_together or _holds(folded, hidden) or bool(word_runs(text) & word_runs(answer))


def _pieces(text: str) -> list[str]:
    """Words and numbers in their case, each letter in its usual width, numbers without separators of thousands."""
    return _PIECE.findall(_THOUSANDS.sub("", unicodedata.normalize("NFKC", text)))


def _common(pieces: Sequence[str]) -> bool:
    return len(pieces) == 1 and pieces[0] in _COMMON_ANSWERS


def word_runs(text: str) -> Runs:
    """The runs of five words in a text, in any case: what two texts share is a quotation."""
    of = _folded(text)
    return frozenset(tuple(of[at : at + LEAK_WORDS]) for at in range(len(of) - LEAK_WORDS + 1))


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in words(text)]


def _holds(text: Sequence[str], part: Sequence[str]) -> bool:
    n = len(part)
    return any(list(text[at : at + n]) == list(part) for at in range(len(text) - n + 1))
