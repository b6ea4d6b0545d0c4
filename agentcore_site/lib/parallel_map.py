"""Pieces of work that are done beside each other by threads, each with a connection of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

from django.db import connection, connections

T = TypeVar("T")


def parallel_map(works: Iterable[Callable[[], T]], width: int = 2) -> Generator[T, None, None]:
    """What each returns, in their order. ``width`` of them are under way or wait to be taken, and no more: each is
    asked for only when one before it was taken. What one raises is raised here, in its place.

    The threads see the rows that the caller may see. Inside of a transaction the caller does all of it: another
    connection would not see what was written there.
    """
    if connection.in_atomic_block:
        for work in works:
            yield work()
        return
    left = iter(works)
    beside = ThreadPoolExecutor(max_workers=width, thread_name_prefix="parallel-map")
    begun: deque[Future[T]] = deque()
    try:
        begun.extend(_begun(beside, work) for work in islice(left, width))
        while begun:
            done = begun.popleft().result()
            yield done
            begun.extend(_begun(beside, work) for work in islice(left, 1))
    finally:
        beside.shutdown(wait=False, cancel_futures=True)  # a caller that gave up does not wait for the others


def _begun(beside: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    return beside.submit(copy_context().run, _done, work)  # the scope of rows is told to the thread


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connections.close_all()
