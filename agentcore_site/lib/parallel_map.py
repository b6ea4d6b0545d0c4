"""Calls run in parallel by threads, each with a connection of its own."""

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
    """The results of the calls, in their order. At most ``width`` calls run or wait to be consumed: each next call is
    requested only when an earlier result was taken. Exceptions are raised here, in their place.

    The threads see the same rows as the caller. Inside a transaction the caller makes all calls: another connection
    would not see the transaction's writes.
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
    return beside.submit(copy_context().run, _done, work)  # the thread gets the caller's row scope


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connections.close_all()
