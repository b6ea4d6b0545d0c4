"""Texts and JSON values without what names a person. Pure: where they stand is for those to say who store them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

ERASED: Final = "[erased]"  # what stands where a text was that had to go


def without(value: Any, words: Sequence[str]) -> Any:
    """``value`` with each of the words replaced, in any case, in keys too."""
    if isinstance(value, str):
        for word in words:
            value = re.sub(re.escape(word), ERASED, value, flags=re.IGNORECASE)
        return value
    if isinstance(value, Mapping):
        return {without(key, words): without(one, words) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without(one, words) for one in value]
    return value


def holds(value: Any, words: Sequence[str]) -> bool:
    """Whether a text in ``value`` has one of the words in it, in any case."""
    if isinstance(value, str):
        folded = value.casefold()
        return any(word.casefold() in folded for word in words)
    if isinstance(value, Mapping):
        return any(holds(key, words) or holds(one, words) for key, one in value.items())
    return isinstance(value, list | tuple) and any(holds(one, words) for one in value)
