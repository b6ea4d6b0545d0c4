"""Prefetch of pieces from the database while the caller works on the pieces before."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

from django.db import connection, connections

T = TypeVar("T")


def prefetch(pieces: Iterator[T]) -> Generator[T, None, None]:
    """The same pieces in the same order. A thread reads the next piece while the caller works, and only that one: two
    are in memory. Its exceptions are raised here, in their place.

    The thread has a connection of its own and sees the same rows as the caller. A pool gets the connection back after
    each piece, so that a slow reader of a stream delays no other; without a pool it ends with the last piece. The
    caller reads the first piece: it may hold a connection of the pool still, and many that begin at once would wait for
    second ones for ever. Inside a transaction the caller reads all pieces: another connection would not see the
    transaction's writes.
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
        # Without waiting: a reader that left (its stream was cut off) may run in an event loop.
        beside.submit(connections.close_all)
        beside.shutdown(wait=False)


def _asked(beside: ThreadPoolExecutor, pieces: Iterator[T]) -> Future[tuple[T] | None]:
    return beside.submit(copy_context().run, _next, pieces)  # the thread gets the caller's row scope


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
