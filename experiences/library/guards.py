"""What a lesson has to be before anybody is told it (ALGORITHMS 5.5): short, general, and nobody's answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_WORDS: Final = 32
MAX_CHARACTERS: Final = 400
LEAK_WORDS: Final = 5  # so many words in a row from a query are a quotation and not a lesson
SHORTEST_ANSWER: Final = 3  # shorter answers stand in too many innocent sentences
_COMMON_ANSWERS: Final = frozenset({"yes", "no", "true", "false", "none", "all", "right", "wrong", "the", "and", "not"})
_WORD = re.compile(r"[\w'’-]+")

Runs = frozenset[tuple[str, ...]]
_ENDS = re.compile(r"[.!?](?:\s|$)")


@dataclass(frozen=True, slots=True)
class Source:
    """What a lesson may not repeat: the query that taught it, and the answers that were right."""

    query: str = ""
    answers: tuple[str, ...] = ()


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
    for answer in source.answers:
        said = _folded(answer)
        if said and len(answer.strip()) >= SHORTEST_ANSWER and not _common(said) and _holds(mine, said):
            return "it gives the answer of the query that taught it"
    return ""


def _common(said: Sequence[str]) -> bool:
    return len(said) == 1 and said[0] in _COMMON_ANSWERS


def word_runs(text: str) -> Runs:
    """The runs of five words in a text, in any case: what two texts share is a quotation."""
    of = _folded(text)
    return frozenset(tuple(of[at : at + LEAK_WORDS]) for at in range(len(of) - LEAK_WORDS + 1))


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in words(text)]


def _holds(text: Sequence[str], part: Sequence[str]) -> bool:
    n = len(part)
    return any(list(text[at : at + n]) == list(part) for at in range(len(text) - n + 1))
