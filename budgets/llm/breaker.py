"""A circuit breaker for one endpoint: opens after N failures; one probe after the cool-down closes or reopens it.

closed --N consecutive failures--> open --after the cool-down, one probe--> half-open --success--> closed
                                     ^------------------- failure ------------------|
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from budgets.llm.errors import CircuitOpen

THRESHOLD: Final = 8  # consecutive failures


class CircuitBreaker:
    """Used by one event loop. Each ``enter`` is followed by exactly one of ``succeeded``, ``failed``, ``abandoned``.

    ``threshold`` consecutive failures open it for ``cooldown_s`` seconds. ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self, *, threshold: int = THRESHOLD, cooldown_s: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._threshold = threshold
        self._cooldown = cooldown_s
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        """ "closed", "open" or "half-open"."""
        if self._opened_at is None:
            return "closed"
        return "half-open" if self._probing or self._left() <= 0 else "open"

    def enter(self) -> None:
        """Raises CircuitOpen, with the seconds to wait, while it is open or a probe is under way."""
        if self._opened_at is None:
            return
        left = self._left()
        if left > 0 or self._probing:
            # How long a running probe takes is not known; a second later is early enough to ask again.
            wait = left if left > 0 else min(1.0, self._cooldown)
            raise CircuitOpen("The endpoint failed repeatedly; no request was sent.", retry_after=wait)
        self._probing = True

    def succeeded(self) -> None:
        self._failures = 0
        self._opened_at = None
        self._probing = False

    def failed(self) -> None:
        self._failures += 1
        # A call from before it opened may fail while it is open: that is no news and must not prolong it.
        if self._probing or (self._opened_at is None and self._failures >= self._threshold):
            self._opened_at = self._clock()
            self._probing = False

    def abandoned(self) -> None:
        """The call said nothing about the endpoint: it was cancelled or refused before it was sent."""
        self._probing = False

    def _left(self) -> float:
        assert self._opened_at is not None
        return self._opened_at + self._cooldown - self._clock()
