"""Pieces read from the database while the caller is at work with the ones before: both are at work."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

from django.db import connection, connections

T = TypeVar("T")


def prefetch(pieces: Iterator[T]) -> Generator[T, None, None]:
    """The same pieces in the same order. A thread reads the next one while the caller works, and no more than that one:
    two are in memory. What it raises is raised here, in its place.

    The thread has a connection of its own and sees the rows that the caller may see. A pool gets the connection back
    after each piece, so that a slow reader of a stream holds up no other; without a pool it ends with the last piece.
    The first piece is read by the caller: it may hold a connection of the pool still, and many who begin at once would
    wait for second ones for ever. Inside of a transaction it reads all of them: another connection would not see what
    was written there.
    """
    if connection.in_atomic_block:
        yield from pieces
        return
    first = list(islice(pieces, 1))
    if not first:
        return
    beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        ahead = _asked(beside, pieces)
        yield first.pop()
        while found := ahead.result():
            ahead = _asked(beside, pieces)
            yield found[0]
        beside.submit(connections.close_all).result()
    finally:
        # Not waited for: a reader that left (its stream was cut off) may stand in an event loop.
        beside.submit(connections.close_all)
        beside.shutdown(wait=False)


def _asked(beside: ThreadPoolExecutor, pieces: Iterator[T]) -> Future[tuple[T] | None]:
    return beside.submit(copy_context().run, _next, pieces)  # the scope of rows is told to the thread


def _next(pieces: Iterator[T]) -> tuple[T] | None:
    """None after the last one."""
    try:
        for piece in pieces:
            return (piece,)
        return None
    finally:
        for one in connections.all(initialized_only=True):
            if "pool" in one.settings_dict["OPTIONS"]:
                one.close()
