"""Removal of words that identify a person from texts and JSON values. Pure: each app knows where it stores them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

ERASED: Final = "[erased]"  # replaces an erased text


@dataclass(frozen=True, slots=True)
class ProgramKeys:
    """Keys of a JSON value that only the program writes (``names``, at any depth). Values of the ``closed`` keys can
    hold no words of a person; under the ``foreign`` keys nothing is the program's, not even its key names. A person
    with the name of a setting must not cost the setting."""

    names: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()

    @classmethod
    def but(cls, names: Iterable[str], *open_names: str, foreign: Iterable[str] = ()) -> Self:
        """The program writes all of these names and the ``foreign`` ones; ``names`` but ``open_names`` are closed."""
        ours = frozenset(names)
        return cls(ours.union(foreign), ours - set(open_names), frozenset(foreign))

    def under(self, key: str) -> Self:
        """The program's keys in the value of a key."""
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
    """True if a text in ``value`` contains one of the words, in any case."""
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
