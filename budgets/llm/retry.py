"""The wait before the next attempt, and when to stop.

Exponential back-off with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
``Retry-After`` (RFC 9110, 10.2.3) is a floor: a client that is asked to wait 10 s waits 10 s and a bit.
Where that is longer than the time left the call fails at once, so that its job can pause instead of waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from budgets.llm.errors import CircuitOpen, LLMError, Transient


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``base_s`` doubles with each attempt up to ``cap_s``; both in seconds.

    ``max_retries`` bounds the attempts after the first, ``total_s`` the time of them all with the waits between.
    """

    max_retries: int = 4
    total_s: float = 300.0
    base_s: float = 0.5
    cap_s: float = 30.0

    def wait(
        self, error: LLMError, *, sent: int, elapsed: float, uniform: Callable[[float, float], float]
    ) -> float | None:
        """Seconds until the next attempt; None: give up.

        ``sent`` is the number of attempts made so far. An open circuit takes none of them: nothing was sent.
        """
        if error.final or not isinstance(error, Transient | CircuitOpen):
            return None
        if isinstance(error, Transient) and sent > self.max_retries:
            return None
        ceiling = min(self.cap_s, self.base_s * 2 ** min(max(sent - 1, 0), 32))
        seconds = (error.retry_after or 0.0) + uniform(0.0, ceiling)
        return seconds if elapsed + seconds <= self.total_s else None


def parse_retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header, given in seconds or as a date; None where it says nothing usable."""
    if not value:
        return None
    text = value.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
