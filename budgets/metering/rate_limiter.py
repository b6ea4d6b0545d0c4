"""A brake on what a job spends in a minute, by what its own calls were measured to need. Pure, no Django.

A budget says how much a job may spend, not how fast. Where most of the money goes to calls that bring no answer (an
endpoint that fails every other call after having worked on it), a budget for a week is gone in a night.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentcore_site.lib.money import MICROS


@dataclass(frozen=True, slots=True)
class Spent:
    """A job's charges, in micro-dollars: ``minute_micros`` in the last minute, and ``needed_micros`` for calls that
    brought an answer in the most expensive of the last minutes, this one included."""

    minute_micros: int
    needed_micros: int


@dataclass(frozen=True, slots=True)
class SpendingRateLimiter:
    """Stops a job that spends more than ``factor`` times what its answered calls need, and more than ``floor_micros``
    micro-dollars, in a minute. A factor of 0 turns it off."""

    factor: float
    floor_micros: int

    def limit_micros(self, spent: Spent) -> int:
        """Micro-dollars that the job may spend in a minute."""
        return max(self.floor_micros, round(self.factor * spent.needed_micros))

    def refusal(self, spent: Spent) -> str:
        """Why no further call may be made now, with the rate and the limit; "" where there is no reason."""
        limit_micros = self.limit_micros(spent)
        if self.factor <= 0 or spent.minute_micros <= limit_micros:
            return ""
        return (
            f"It was charged ${spent.minute_micros / MICROS:,.2f} in the last minute at this endpoint, and its"
            f" answered calls needed ${spent.needed_micros / MICROS:,.2f} a minute at most: more than"
            f" ${limit_micros / MICROS:,.2f} a minute stops it (SPENDING_BRAKE_FACTOR, SPENDING_BRAKE_FLOOR_USD)."
            " See in its costs which calls brought no answer,"
            " mend the endpoint, and resume the job a minute later."
        )
