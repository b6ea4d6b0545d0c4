"""Values that go into the ledger and come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentcore_site.lib.texts import plain
from budgets.ledger.accounts import Chain
from budgets.meter_port import Bill, BudgetRefused, SpendingRateFull

LEASE: Final = 600.0  # seconds until a hold that was not settled is charged
MOST_MICROS: Final = (
    10**15
)  # micro-dollars: what is more than a billion dollars is a mistake, and sums must stay integers


class UnknownHold(LookupError):
    """Nothing is held under this key: a settlement came without a reservation."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The worst case of one attempt of one call. ``amount_micros`` in micro-dollars, ``lease`` in seconds.

    ``late``: it was spent before the ledger could be asked, so that no limit can refuse it any more. What is held for
    longer than ``LEASE`` is no call's, and does not count for how fast an organisation spends.

    Raises ValueError for an amount that is negative (it would give money away) or beyond reason.
    """

    key: str
    chain: Chain
    amount_micros: int
    purpose: str = ""
    model: str = ""
    iteration: int | None = None
    rollout: str = ""
    lease: float = LEASE
    late: bool = False

    @property
    def paced(self) -> bool:
        return self.lease <= LEASE

    def __post_init__(self) -> None:
        if not 0 <= self.amount_micros <= MOST_MICROS:
            raise ValueError(f"The hold {self.key!r} is of {self.amount_micros} micro-dollars.")


@dataclass(frozen=True, slots=True)
class Settlement:
    """The bill of the attempt under ``key``. Raises ValueError as ``Hold`` does."""

    key: str
    bill: Bill

    def __post_init__(self) -> None:
        if not 0 <= self.bill.amount_micros <= MOST_MICROS:
            raise ValueError(f"The bill of {self.key!r} is of {self.bill.amount_micros} micro-dollars.")


@dataclass(frozen=True, slots=True)
class LedgerRefusal:
    """A budget that had no room. All amounts are micro-dollars; ``spent_micros`` includes what is owed.

    ``wait`` above 0: it has none in this minute, and has some in so many seconds; ``limit_micros`` and ``spent_micros``
    are then of a minute.
    """

    budget: int
    scope: str
    limit_micros: int
    spent_micros: int
    reserved_micros: int
    wanted_micros: int
    wait: float = 0.0

    def error(self) -> BudgetRefused:
        if self.wait:
            return SpendingRateFull(self.limit_micros, self.spent_micros, self.wanted_micros, self.wait)
        return BudgetRefused(self.scope, self.limit_micros, self.spent_micros, self.reserved_micros, self.wanted_micros)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The outcome of a hold. ``fresh``: made by this very call. ``state`` is that of the reservation, "" if refused.

    A known key returns its first outcome again, also if its state is another one by now.
    """

    key: str
    state: str = ""
    fresh: bool = False
    refusal: LedgerRefusal | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a settlement: "settled", "refunded" (it had been charged), "repeated" or "unknown".

    ``excess_micros`` in micro-dollars: by how much the bill was above the hold (an incident).
    """

    key: str
    state: str
    excess_micros: int = 0


def storable(text: str, length: int | None = None) -> str:
    """Text as PostgreSQL takes it (no NUL, no lone surrogates), cut to its column: one odd name fails no batch."""
    return plain(text)[:length]
