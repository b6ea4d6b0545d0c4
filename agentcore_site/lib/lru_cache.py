"""A cache that drops the least recently used values."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Stores at most ``most`` values. When a new value is made, it drops those unused for ``seconds``: a cache that is
    bounded by number alone grows as long as new keys come."""

    def __init__(self, most: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made if it is not stored. Two concurrent callers may each make it."""
        with self._lock:
            if (found := self._kept.get(key)) is not None:
                self._keep(key, found[1])
                return found[1]
        made = make()
        with self._lock:
            self._keep(key, made)
            oldest = self._clock() - self._seconds
            while len(self._kept) > self._most or next(iter(self._kept.values()))[0] < oldest:
                self._kept.popitem(last=False)
        return made

    def _keep(self, key: K, value: V) -> None:
        self._kept[key] = self._clock(), value
        self._kept.move_to_end(key)
