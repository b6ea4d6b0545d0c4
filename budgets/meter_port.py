"""``Meter``, which holds and settles the money of calls: the port between client and ledger. Pure, no Django.

The client holds the worst case with ``Meter.reserve``, sends the request, and reports the attempt's cost with
``Meter.settle``. The ledger implements the protocol in production, ``FreeMeter`` in tests and tools.
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
    """The payer of a call, and its purpose.

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

    amount_micros: int
    usage: Usage | None
    source: str
    latency_ms: int = 0
    error: str = ""


class BudgetRefused(Exception):
    """A hold does not fit a budget of the chain. All amounts are micro-dollars.

    ``scope`` is "organization", "agent", "job" or "playground": the first budget of the chain that refused.
    """

    def __init__(
        self, scope: str, limit_micros: int, spent_micros: int, reserved_micros: int, wanted_micros: int
    ) -> None:
        left_micros = max(0, limit_micros - spent_micros - reserved_micros)
        cost, room = apart(wanted_micros, left_micros)
        super().__init__(
            f"The {scope}'s budget does not allow this call: it may cost {cost} and {room}"
            f" of {money(limit_micros)} is left ({money(spent_micros)} spent, {money(reserved_micros)} on hold)."
        )
        self.scope = scope
        self.limit_micros = limit_micros
        self.spent_micros = spent_micros
        self.reserved_micros = reserved_micros
        self.wanted_micros = wanted_micros

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.scope, self.limit_micros, self.spent_micros, self.reserved_micros, self.wanted_micros)


class SpendingRateFull(BudgetRefused):
    """The organisation spends as much a minute as it may; there is room for the call in ``retry_after`` seconds. All
    amounts are micro-dollars: ``limit_micros`` and ``spent_micros`` of a minute."""

    def __init__(self, limit_micros: int, spent_micros: int, wanted_micros: int, retry_after: float) -> None:
        Exception.__init__(
            self,
            f"The organisation may spend {money(limit_micros)} a minute. {money(spent_micros)} was spent or is on hold,"
            f" and this call may cost {money(wanted_micros)}: there is room for it in {retry_after:,.1f} seconds.",
        )
        self.scope, self.reserved_micros = "organization", 0
        self.limit_micros, self.spent_micros, self.wanted_micros = limit_micros, spent_micros, wanted_micros
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit_micros, self.spent_micros, self.wanted_micros, self.retry_after)


class MeterFailure(Exception):
    """The meter can say neither yes nor no; the call is not made. ``passing``: trying again later may help."""

    passing = True


class SpendingTooFast(MeterFailure):
    """The job spends far more a minute than its calls need (``budgets.metering.rate_limiter``). A person must act."""

    passing = False


class Meter(Protocol):
    """Holds and settles money. The caller settles every hold that it got, also of calls that failed."""

    async def reserve(self, call: CallKey, amount_micros: int) -> None:
        """Returns only after the hold of ``amount_micros`` is committed; raises BudgetRefused. Where the caller is
        cancelled meanwhile, the hold is given back, whether it was committed or not."""

    async def settle(self, call: CallKey, bill: Bill) -> None:
        """Hands over what the attempt came to, and does not wait until it is written: until then the hold covers it.
        Idempotent; a late one, after the hold was charged, refunds."""


class PriceBook(Protocol):
    """Prices by model name, as of now."""

    def price(self, model: str) -> Price:
        """Raises UnknownPrice."""


class FreeMeter:
    """Counts and never refuses: for tests, tools and models that cost nothing.

    ``holds_micros`` and ``bills`` are by attempt key, in the order in which they came. Raises ValueError where a key is
    held twice or settled without a hold: a ledger has to survive such a caller, a test should catch it.
    """

    def __init__(self) -> None:
        self.holds_micros: dict[str, int] = {}
        self.bills: dict[str, Bill] = {}
        self.calls: dict[str, CallKey] = {}

    @property
    def reserved_micros(self) -> int:
        """Micro-dollars of the holds that are not settled."""
        return sum(amount_micros for key, amount_micros in self.holds_micros.items() if key not in self.bills)

    @property
    def spent_micros(self) -> int:
        return sum(bill.amount_micros for bill in self.bills.values())

    async def reserve(self, call: CallKey, amount_micros: int) -> None:
        if call.key in self.holds_micros:
            raise ValueError(f"{call.key!r} is held already.")
        self.holds_micros[call.key] = amount_micros
        self.calls[call.key] = call

    async def settle(self, call: CallKey, bill: Bill) -> None:
        if call.key not in self.holds_micros:
            raise ValueError(f"{call.key!r} was never held.")
        self.bills.setdefault(call.key, bill)
