"""Rules for a text before it enters a context, and the texts that wait for a person
(docs/algorithms.md#playbook-curator)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from experiences.learning.lessons.guards import Runs, word_runs
from experiences.learning.playbooks.items import CATEGORIES, MAX_CONTENT

MAX_DEPTH: Final = 64
COPIED: Final = "it repeats words of what users or tools said in the executions that taught it"


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


def untrusted_runs(texts: Iterable[str], known: Iterable[str]) -> Runs:
    """Runs of words that only untrusted texts hold. An execution may have had the playbook in its context: words of the
    playbook are no quotation."""
    return _runs(texts) - _runs(known)


def copied(content: str, untrusted: Runs) -> bool:
    return bool(untrusted and word_runs(content) & untrusted)


def _runs(texts: Iterable[str]) -> Runs:
    return frozenset().union(*map(word_runs, texts))


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
