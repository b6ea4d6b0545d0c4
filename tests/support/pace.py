"""Processor time as a multiple of a bare loop in the same process, which a slow machine stretches alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache


def taken(work: Callable[[], object]) -> float:
    """Processor time of ``work``, in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


@cache
def _million() -> float:
    def loop() -> None:
        for _ in range(1_000_000):
            pass

    return min(taken(loop) for _ in range(3))


def millions(work: Callable[[], object]) -> float:
    """Processor time of ``work``, in bare loops of a million rounds."""
    return taken(work) / _million()
