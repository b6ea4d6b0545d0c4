"""Texts and JSON values without what names a person. Pure: where they stand is for those to say who store them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

ERASED: Final = "[erased]"  # what stands where a text was that had to go


@dataclass(frozen=True, slots=True)
class ProgramKeys:
    """What the program alone writes in a JSON value: keys (``names``, at any depth). Under some of them (``closed``) no
    words of a person can stand; under others (``foreign``) nothing is the program's, whatever its keys are called.
    That a person has the name of a setting must not cost the setting."""

    names: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()

    @classmethod
    def but(cls, names: Iterable[str], *said: str, foreign: Iterable[str] = ()) -> Self:
        """The program writes all of these names and of the ``foreign`` ones; all of ``names`` but ``said`` are
        closed."""
        ours = frozenset(names)
        return cls(ours.union(foreign), ours - set(said), frozenset(foreign))

    def under(self, key: str) -> Self:
        """What is the program's in the value of a key."""
        return type(self)() if key in self.foreign else self


NO_PROGRAM_KEYS: Final = ProgramKeys()


def erase_words(value: Any, words: Sequence[str], own: ProgramKeys = NO_PROGRAM_KEYS) -> Any:
    """``value`` with each of the words replaced, in any case, in keys too."""
    if isinstance(value, str):
        for word in words:
            value = re.sub(re.escape(word), ERASED, value, flags=re.IGNORECASE)
        return value
    if isinstance(value, Mapping):
        return {
            key if key in own.names else erase_words(key, words): one
            if key in own.closed
            else erase_words(one, words, own.under(key))
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [erase_words(one, words, own) for one in value]
    return value


def contains_words(value: Any, words: Sequence[str], own: ProgramKeys = NO_PROGRAM_KEYS) -> bool:
    """Whether a text in ``value`` has one of the words in it, in any case."""
    if isinstance(value, str):
        folded = value.casefold()
        return any(word.casefold() in folded for word in words)
    if isinstance(value, Mapping):
        return any(
            (key not in own.names and contains_words(key, words))
            or (key not in own.closed and contains_words(one, words, own.under(key)))
            for key, one in value.items()
        )
    return isinstance(value, list | tuple) and any(contains_words(one, words, own) for one in value)
