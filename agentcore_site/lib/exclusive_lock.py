"""A lock for work of one worker at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.core.cache import cache

LONGEST: Final = 120  # seconds; then its worker is assumed dead


@contextmanager
def exclusive_lock(name: str) -> Iterator[bool]:
    """True if the lock was taken; no other worker gets it until the block ends."""
    mine = cache.add(name, "", timeout=LONGEST)
    try:
        yield mine
    finally:
        if mine:
            cache.delete(name)
