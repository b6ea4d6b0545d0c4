"""What a text has to be before an agent is told it, and which texts wait for a person (ALGORITHMS 5.5)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from experiences.library.suspicion import suspicion
from experiences.playbooks.sections import CATEGORIES, MAX_CONTENT

COPIED_WORDS: Final = 5  # so many words in a row are a quotation
MAX_DEPTH: Final = 64
COPIED: Final = "it repeats words of what users or tools said in the executions that taught it"
_WORD = re.compile(r"[\w'’-]+")

Grams = frozenset[tuple[str, ...]]


def text_fault(content: str) -> str:
    """Why a text can't be an item at all; "" if it can."""
    if not content.strip():
        return "its text is empty"
    if len(content) > MAX_CONTENT:
        return f"its text has {len(content):,} characters; {MAX_CONTENT:,} are allowed"
    if any(unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t" for char in content):
        return "its text holds control characters"
    return ""


def category_fault(category: str | None) -> str:
    return "" if category in CATEGORIES else f"its category is none of {', '.join(CATEGORIES)}"


def injection(content: str) -> str:
    """Why a text looks as if it were written to steer whoever reads it; "" if it does not."""
    return suspicion(content)


def grams(texts: Iterable[str]) -> Grams:
    """The runs of five words that stand in the texts, in any case."""
    found: set[tuple[str, ...]] = set()
    for text in texts:
        words = [word.casefold() for word in _WORD.findall(text)]
        found.update(tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1))
    return frozenset(found)


def untrusted_grams(texts: Iterable[str], known: Iterable[str]) -> Grams:
    """The runs of words that nobody vouches for. An execution may have been told the playbook itself: what stands
    there already is no quotation."""
    return grams(texts) - grams(known)


def copied(content: str, untrusted: Grams) -> bool:
    return bool(untrusted and grams([content]) & untrusted)


def texts_in(value: Any, depth: int = 0) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    if depth >= MAX_DEPTH:
        return []
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in texts_in(part, depth + 1)]
    if isinstance(value, Sequence):
        return [text for part in value for text in texts_in(part, depth + 1)]
    return []
