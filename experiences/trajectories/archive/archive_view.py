"""Whether queries of the table of trajectories ask the session's own table of archived rows in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_shadowed: ContextVar[bool] = ContextVar("trajectories_shadowed", default=False)


def is_shadowed() -> bool:
    return _shadowed.get()


@contextmanager
def shadowing() -> Iterator[None]:
    token = _shadowed.set(True)
    try:
        yield
    finally:
        _shadowed.reset(token)
