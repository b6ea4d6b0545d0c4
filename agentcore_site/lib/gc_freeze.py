"""Freezes what a process loaded at its start, so that the garbage collector does not scan it again and again."""

from __future__ import annotations

import gc
import os
from typing import Final

YOUNG: Final = 20_000  # new objects between two collections: 500 calls at once make more than Python's 700 at a time

_settled_in = 0  # the process; a fork has to do it again
_shared = False


def before_fork() -> None:
    """The same in a process that forks: a garbage collection in a child writes into each object that it visits, and a
    written page is no longer shared. Once, before the first child."""
    global _shared
    if not _shared:
        _shared = True
        gc.collect()
        gc.freeze()


def settle() -> None:
    """Takes all that is alive out of the collector's sight, once in a process: modules, settings, caches.

    A full collection of a worker walks 180,000 such objects, and an event loop with 500 agents is blocked for
    0.13 s meanwhile. Call it when everything is loaded, after the first piece of work.
    """
    global _settled_in
    if _settled_in == os.getpid():
        return
    _settled_in = os.getpid()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
