"""Notes whether a request may have changed anything, for the answer when the database goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Changes:
    """The changes of one request. An object, so that every thread that works for the request marks the same one."""

    possible: bool = False


_current: ContextVar[Changes | None] = ContextVar("changes", default=None)


@contextmanager
def changes_noted() -> Iterator[Changes]:
    """Notes what the block's request commits."""
    changes = Changes()
    token = _current.set(changes)
    try:
        yield changes
    finally:
        _current.reset(token)


def may_have_changed() -> None:
    """A commit was sent: from now on something may have been changed, also where no answer comes."""
    if (changes := _current.get()) is not None:
        changes.possible = True


def changed_nothing() -> bool:
    """Whether no commit was sent by the present request."""
    changes = _current.get()
    return changes is None or not changes.possible
