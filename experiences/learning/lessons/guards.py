"""Rules for a lesson before it enters a context: short, general, and not the answer of a query
(docs/algorithms.md#guards-of-lessons)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_WORDS: Final = 32
MAX_CHARACTERS: Final = 400
LEAK_WORDS: Final = 5  # so many words in a row from a query are a quotation and not a lesson
SHORTEST_ANSWER: Final = 3  # shorter answers are in too many innocent sentences
LONG_ANSWER: Final = 6  # letters from which an answer is found inside of other words
GIVEN: Final = "it gives the answer of the query that taught it"
_COMMON_ANSWERS: Final = frozenset({"yes", "no", "true", "false", "none", "all", "right", "wrong", "the", "and", "not"})
_WORD = re.compile(r"[\w'’-]+")
_PIECE = re.compile(r"[^\W_]+")
_THOUSANDS = re.compile(r"(?<=\d)[,' \u202f](?=\d{3}(?!\d))")

Runs = frozenset[tuple[str, ...]]
_ENDS = re.compile(r"[.!?](?:\s|$)")


@dataclass(frozen=True, slots=True)
class Source:
    """Texts that a lesson may not repeat: the query that taught it, and the right answers. ``shown``: the author of the
    lesson had read the answers, so that short ones and parts of long ones count as well."""

    query: str = ""
    answers: tuple[str, ...] = ()
    shown: bool = False


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
    if word_runs(text) & word_runs(source.query):
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
