"""The database from async code."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

P = ParamSpec("P")
R = TypeVar("R")


def in_thread(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """``function`` as a coroutine, in the request's own thread. Its connection stays until the request is over."""
    return sync_to_async(function, thread_sensitive=True)


def briefly(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """The same, but its connection returns to the pool at the end: code that waits or streams between two calls holds
    none. Inside a transaction (of a test, say) the connection is kept."""

    @functools.wraps(function)
    def released(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        finally:
            _release()

    return sync_to_async(released, thread_sensitive=True)


def lasting(function: Callable[P, R], threads: ThreadPoolExecutor | None = None) -> Callable[P, Awaitable[R]]:
    """The same for a process with repeated queries: the connection stays open, and is replaced only after an error.
    ``threads``: each has a connection of its own, and calls run at once; without, in the order of their start."""

    @functools.wraps(function)
    def kept(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException:
            _release()
            raise

    return sync_to_async(kept, thread_sensitive=threads is None, executor=threads)


def _release() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
