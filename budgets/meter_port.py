"""``Meter``, which holds and settles the money of calls: the port between client and ledger. Pure, no Django.

The client holds the worst case with ``Meter.reserve``, sends the request, and reports the attempt's cost with
``Meter.settle``. The ledger stands behind the protocol in production, ``FreeMeter`` in tests and tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from agentcore_site.lib.money_format import apart, money
from budgets.pricing import Price, UnknownPrice, Usage

__all__ = [
    "Bill",
    "BudgetRefused",
    "CallKey",
    "FreeMeter",
    "Meter",
    "MeterFailure",
    "PriceBook",
    "SpendingRateFull",
    "SpendingTooFast",
    "UnknownPrice",
]


@dataclass(frozen=True, slots=True)
class CallKey:
    """Who pays and what for.

    ``key`` is the idempotency key of one attempt of one call: unique text, for example
    ``<job>/<iteration>/<scenario>/<index>/<n>/<attempt>``. ``purpose`` is "training", "evaluation", "judge", "test"
    or "production". ``rollout`` is free text that says which rollout; "" where there is none.
    """

    key: str
    purpose: str
    model: str
    iteration: int | None = None
    rollout: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one attempt, in micro-dollars.

    ``source`` says where the amount comes from: "provider" (reported cost), "table" (reported tokens, our prices),
    "estimate" (tokens counted by us, or the whole hold where it can't be known) or "none" (nothing was billed).
    """

    amount: int
    usage: Usage | None
    source: str
    latency_ms: int = 0
    error: str = ""


class BudgetRefused(Exception):
    """A hold does not fit a budget of the chain. All amounts are micro-dollars.

    ``scope`` is "organization", "agent" or "job": the first budget of the chain that refused.
    """

    def __init__(self, scope: str, limit: int, spent: int, reserved: int, wanted: int) -> None:
        left = max(0, limit - spent - reserved)
        cost, room = apart(wanted, left)
        super().__init__(
            f"The {scope}'s budget does not allow this call: it may cost {cost} and {room}"
            f" of {money(limit)} is left ({money(spent)} spent, {money(reserved)} on hold)."
        )
        self.scope = scope
        self.limit = limit
        self.spent = spent
        self.reserved = reserved
        self.wanted = wanted

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.scope, self.limit, self.spent, self.reserved, self.wanted)


class SpendingRateFull(BudgetRefused):
    """The organisation spends as much a minute as it may; there is room for the call in ``retry_after`` seconds. All
    amounts are micro-dollars: ``limit`` and ``spent`` of a minute."""

    def __init__(self, limit: int, spent: int, wanted: int, retry_after: float) -> None:
        Exception.__init__(
            self,
            f"The organisation may spend {money(limit)} a minute. {money(spent)} was spent or is on hold, and this call"
            f" may cost {money(wanted)}: there is room for it in {retry_after:,.1f} seconds.",
        )
        self.scope, self.limit, self.spent, self.reserved, self.wanted = "organization", limit, spent, 0, wanted
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit, self.spent, self.wanted, self.retry_after)


class MeterFailure(Exception):
    """The meter can say neither yes nor no; the call is not made. ``passing``: trying again later may help."""

    passing = True


class SpendingTooFast(MeterFailure):
    """The job spends far more a minute than its calls need (``budgets.metering.rate_limiter``). A person must act."""

    passing = False


class Meter(Protocol):
    """Holds and settles money. The caller settles every hold that it got, also of calls that failed."""

    async def reserve(self, call: CallKey, amount: int) -> None:
        """Returns only after the hold of ``amount`` is committed; raises BudgetRefused. Where the caller is cancelled
        meanwhile, the hold is given back, whether it was committed or not."""

    async def settle(self, call: CallKey, bill: Bill) -> None:
        """Hands over what the attempt came to, and does not wait until it is written: until then the hold covers it.
        Idempotent; a late one, after the hold was charged, refunds."""


class PriceBook(Protocol):
    """Prices by model name, as of now."""

    def price(self, model: str) -> Price:
        """Raises UnknownPrice."""


class FreeMeter:
    """Counts and never refuses: for tests, tools and models that cost nothing.

    ``holds`` and ``bills`` are by attempt key, in the order in which they came. Raises ValueError where a key is
    held twice or settled without a hold: a ledger has to survive such a caller, a test should catch it.
    """

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.bills: dict[str, Bill] = {}
        self.calls: dict[str, CallKey] = {}

    @property
    def reserved(self) -> int:
        """Micro-dollars of the holds that are not settled."""
        return sum(amount for key, amount in self.holds.items() if key not in self.bills)

    @property
    def spent(self) -> int:
        return sum(bill.amount for bill in self.bills.values())

    async def reserve(self, call: CallKey, amount: int) -> None:
        if call.key in self.holds:
            raise ValueError(f"{call.key!r} is held already.")
        self.holds[call.key] = amount
        self.calls[call.key] = call

    async def settle(self, call: CallKey, bill: Bill) -> None:
        if call.key not in self.holds:
            raise ValueError(f"{call.key!r} was never held.")
        self.bills.setdefault(call.key, bill)
