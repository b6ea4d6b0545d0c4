"""Balances under their locks, and the one statement that moves money: balances, reservations and ledger at once.

Locks are taken in one order everywhere, so that no deadlock is possible: reservations by key, then budgets from the
outside in (organisation, agent, job, playground).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from budgets.models import AlertKind, EntryKind

log = logging.getLogger(__name__)

THRESHOLDS: Final = (75, 90, 100)  # per cent of a limit

# With what is left of the last minute's spending where the organisation has a rate: a leaky bucket.
LOCK = """
SELECT b.id, b.scope, b."limit", b.spent, b.reserved, b.debt, s.most_per_minute, CASE WHEN s.most_per_minute IS NULL
    THEN 0 ELSE greatest(0, b.minute_level - coalesce(s.most_per_minute
        * extract(epoch FROM clock_timestamp() - b.minute_at) / 60, 0))::bigint END
FROM budgets_budget b LEFT JOIN budgets_budgetsettings s
    ON b.scope = 'organization' AND s.organization_id = b.organization_id AND s.most_per_minute IS NOT NULL
WHERE b.id = ANY(%s::bigint[])
ORDER BY array_position(ARRAY['organization', 'agent', 'job', 'playground'], b.scope::text), b.id FOR NO KEY UPDATE OF b
"""

POST = """
WITH moved AS (
    UPDATE budgets_budget b
    SET spent = b.spent + d.spent, reserved = b.reserved + d.reserved, debt = b.debt + d.debt,
        minute_level = coalesce(d.level, b.minute_level),
        minute_at = CASE WHEN d.level IS NULL THEN b.minute_at ELSE clock_timestamp() END
    FROM unnest(
        %(budgets)s::bigint[], %(spent)s::bigint[], %(reserved)s::bigint[], %(debt)s::bigint[], %(levels)s::bigint[]
    ) AS d(id, spent, reserved, debt, level)
    WHERE b.id = d.id
), ended AS (
    UPDATE budgets_reservation r SET state = d.state, actual = d.actual, ended_at = clock_timestamp()
    FROM unnest(%(ended)s::bigint[], %(states)s::text[], %(actuals)s::bigint[]) AS d(id, state, actual)
    WHERE r.id = d.id
)
INSERT INTO budgets_ledgerentry (
    at, kind, reservation_id, organization_id, agent_id, job_id, organization_budget_id, agent_budget_id,
    job_budget_id, purpose, model, iteration, rollout, spent_delta, reserved_delta, debt_delta, cost, input_tokens,
    output_tokens, cached_tokens, reasoning_tokens, latency_ms, source, estimated, error
)
SELECT
    clock_timestamp(), m.kind, r.id, r.organization_id, r.agent_id, r.job_id, r.organization_budget_id,
    r.agent_budget_id, r.job_budget_id, r.purpose, r.model, r.iteration, r.rollout, m.spent, m.reserved, m.debt, m.cost,
    m.input, m.output, m.cached, m.reasoning, m.latency, m.source, m.estimated, m.error
FROM unnest(
    %(reservations)s::bigint[], %(kinds)s::text[], %(m_spent)s::bigint[], %(m_reserved)s::bigint[],
    %(m_debt)s::bigint[], %(costs)s::bigint[], %(inputs)s::bigint[], %(outputs)s::bigint[], %(cached)s::bigint[],
    %(reasoning)s::bigint[], %(latencies)s::bigint[], %(sources)s::text[], %(estimates)s::boolean[], %(errors)s::text[]
) WITH ORDINALITY AS m(
    reservation, kind, spent, reserved, debt, cost, input, output, cached, reasoning, latency, source, estimated, error,
    place
) JOIN budgets_reservation r ON r.id = m.reservation ORDER BY m.place
"""

# What is paid off is one budget's own matter: the others in the chain may have had the room.
PAID = """
INSERT INTO budgets_ledgerentry (
    at, kind, organization_id, agent_id, job_id, organization_budget_id, agent_budget_id, job_budget_id, purpose, model,
    rollout, spent_delta, reserved_delta, debt_delta, input_tokens, output_tokens, cached_tokens, reasoning_tokens,
    latency_ms, source, estimated, error
)
SELECT clock_timestamp(), 'adjust', b.organization_id, b.agent_id, b.job_id,
    CASE WHEN b.scope = 'organization' THEN b.id END, CASE WHEN b.scope = 'agent' THEN b.id END,
    CASE WHEN b.scope IN ('job', 'playground') THEN b.id END, '', '', '', d.paid, 0, -d.paid, 0, 0, 0, 0, 0, 'none',
    false, 'debt paid'
FROM unnest(%s::bigint[], %s::bigint[]) AS d(id, paid) JOIN budgets_budget b ON b.id = d.id
"""

ALERT = """
INSERT INTO budgets_budgetalert (
    id, budget_id, kind, threshold, "limit", spent, excess, created_at, tries, try_after, error
)
SELECT gen_random_uuid(), d.budget, d.kind, d.threshold, d.lim, d.spent, d.excess, clock_timestamp(), 0,
    clock_timestamp(), ''
FROM unnest(%s::bigint[], %s::text[], %s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS d(budget, kind, threshold, lim, spent, excess)
ON CONFLICT DO NOTHING
"""


@dataclass(slots=True)
class Balance:
    """A budget's row under its lock. All amounts are micro-dollars; ``limit_micros`` None: not limited.

    ``rate_micros``: what its calls may cost a minute, None: as much as they do. ``level_micros``: what they cost and
    hold of the last minute.
    """

    id: int
    scope: str
    limit_micros: int | None
    spent_micros: int
    reserved_micros: int
    debt_micros: int
    rate_micros: int | None = None
    level_micros: int = 0
    was_micros: tuple[int, int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.was_micros = (self.spent_micros, self.reserved_micros, self.debt_micros)

    def fits(self, amount_micros: int) -> bool:
        return self.debt_micros == 0 and (
            self.limit_micros is None or self.spent_micros + self.reserved_micros + amount_micros <= self.limit_micros
        )

    def wait(self, amount_micros: int, lately_micros: int = 0) -> float:
        """Seconds until the rate has room for a call, on top of what was taken ``lately_micros`` and is not in the
        level yet. A call that is dearer than a whole minute waits for an empty one."""
        if self.rate_micros is None:
            return 0.0
        over_micros = self.level_micros + lately_micros + min(amount_micros, self.rate_micros) - self.rate_micros
        return max(0.0, 60 * over_micros / self.rate_micros)

    def pay(self) -> int:
        """Moves as much debt to ``spent_micros`` as the limit has room for, and says how much."""
        room_micros = (
            self.debt_micros
            if self.limit_micros is None
            else max(0, self.limit_micros - self.spent_micros - self.reserved_micros)
        )
        paid_micros = min(self.debt_micros, room_micros)
        self.spent_micros += paid_micros
        self.debt_micros -= paid_micros
        return paid_micros

    @property
    def deltas_micros(self) -> tuple[int, int, int]:
        spent_micros, reserved_micros, debt_micros = self.was_micros
        return self.spent_micros - spent_micros, self.reserved_micros - reserved_micros, self.debt_micros - debt_micros

    def reached(self) -> list[int]:
        """The thresholds that were crossed since the lock was taken, in per cent."""
        if self.limit_micros is None:
            return []
        before_micros, now_micros = self.was_micros[0] + self.was_micros[2], self.spent_micros + self.debt_micros
        return [
            threshold
            for threshold in THRESHOLDS
            if 100 * before_micros < threshold * self.limit_micros <= 100 * now_micros
        ]


@dataclass(frozen=True, slots=True)
class Move:
    """One ledger entry to be: what a reservation does to every budget of its chain.

    ``ends`` is the state that the reservation gets, with ``cost_micros`` as its actual cost; "" leaves it as it is.
    ``paced_micros`` is what it adds to the spending of this minute.
    """

    reservation: int
    budgets: Sequence[int]
    kind: EntryKind
    spent_micros: int = 0
    reserved_micros: int = 0
    debt_micros: int = 0
    ends: str = ""
    cost_micros: int | None = None
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)  # input, output, cached, reasoning
    latency_ms: int = 0
    source: str = ""
    estimated: bool = False
    error: str = ""
    paced_micros: int = 0


def lock(cursor: Any, budgets: Collection[int]) -> dict[int, Balance]:
    """The balances of these budgets, locked until the transaction ends.

    Raises:
        LookupError: one of them is not there.
    """
    cursor.execute(LOCK, [list(budgets)])
    balances = {row[0]: Balance(*row) for row in cursor.fetchall()}
    if len(balances) < len(budgets):
        raise LookupError(f"There are no budgets {sorted(set(budgets) - set(balances))}.")
    return balances


def post(cursor: Any, balances: dict[int, Balance], moves: Sequence[Move]) -> None:
    """Applies the moves to the locked balances and writes everything. Debt is paid as far as there is room."""
    for move in moves:
        for one in move.budgets:
            balance = balances[one]
            balance.spent_micros += move.spent_micros
            balance.reserved_micros += move.reserved_micros
            balance.debt_micros += move.debt_micros
            balance.level_micros = max(0, balance.level_micros + move.paced_micros)
    paid = [(one.id, amount_micros) for one in balances.values() if one.debt_micros and (amount_micros := one.pay())]
    if not moves and not paid:
        return
    changed = [
        (one.id, *one.deltas_micros, None if one.rate_micros is None else one.level_micros) for one in balances.values()
    ]
    ended = [(move.reservation, move.ends, move.cost_micros) for move in moves if move.ends]
    cursor.execute(
        POST,
        _columns(("budgets", "spent", "reserved", "debt", "levels"), changed)
        | _columns(("ended", "states", "actuals"), ended)
        | _columns(MOVED, [_row(move) for move in moves]),
    )
    if paid:
        cursor.execute(PAID, [[one for one, _ in paid], [amount_micros for _, amount_micros in paid]])
    alerts = [Alert(one, threshold) for one in balances.values() for threshold in one.reached()]
    # A bill above its hold alerts the outermost budget: the provider or our price is at fault, not the job.
    alerts += [
        Alert(balances[move.budgets[0]], kind=AlertKind.ABOVE_HOLD, excess_micros=move.debt_micros)
        for move in moves
        if move.kind == EntryKind.DEBT and move.budgets
    ]
    alerts_raise(cursor, alerts)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of a budget, to be inserted. ``threshold`` in per cent, ``excess_micros`` of a bill above its hold in
    micro-dollars."""

    balance: Balance
    threshold: int = 0
    kind: str = AlertKind.THRESHOLD
    excess_micros: int = 0


def alerts_raise(cursor: Any, alerts: Iterable[Alert]) -> None:
    """Inserts alerts, once per budget, threshold and limit. A budget's row is one period."""
    rows = [
        (
            alert.balance.id,
            str(alert.kind),
            alert.threshold,
            alert.balance.limit_micros or 0,
            alert.balance.spent_micros + alert.balance.debt_micros,
            alert.excess_micros,
        )
        for alert in alerts
    ]
    if rows:
        cursor.execute(ALERT, [list(column) for column in zip(*rows, strict=True)])


MOVED: Final = (
    "reservations", "kinds", "m_spent", "m_reserved", "m_debt", "costs", "inputs", "outputs", "cached", "reasoning",
    "latencies", "sources", "estimates", "errors",
)  # fmt: skip


def _row(move: Move) -> tuple[Any, ...]:
    head = (
        move.reservation,
        str(move.kind),
        move.spent_micros,
        move.reserved_micros,
        move.debt_micros,
        move.cost_micros,
    )
    return *head, *move.tokens, move.latency_ms, move.source, move.estimated, move.error


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
