"""Reserve before spending. The hold is committed when ``reserve`` returns, and only then may the call be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.db import connection, transaction

from budgets.ledger.posting import Alert, Balance, Move, alerts_raise, lock, post
from budgets.ledger.values import Hold, LedgerRefusal, Reserved, storable
from budgets.models import EntryKind, HoldState

NEARLY_ALL: Final = 90  # per cent of a limit that are spent before a refusal says that it is used up

# In the order of the keys, so that two batches with the same keys wait for each other and not in a circle.
INSERT = """
INSERT INTO budgets_reservation (
    key, organization_id, agent_id, job_id, organization_budget_id, agent_budget_id, job_budget_id, amount, state,
    purpose, model, iteration, rollout, created_at, expires_at
)
SELECT h.key, h.organization, h.agent, h.job, h.organization_budget, h.agent_budget, h.job_budget, h.amount, 'held',
    h.purpose, h.model, h.iteration, h.rollout, clock_timestamp(), clock_timestamp() + make_interval(secs => h.lease)
FROM unnest(
    %s::text[], %s::uuid[], %s::uuid[], %s::uuid[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[],
    %s::text[], %s::integer[], %s::text[], %s::float8[]
) AS h(
    key, organization, agent, job, organization_budget, agent_budget, job_budget, amount, purpose, model, iteration,
    rollout, lease
)
ORDER BY h.key ON CONFLICT (key) DO NOTHING RETURNING key, id
"""


def reserve(hold: Hold) -> Reserved:
    """Holds the worst case of one call in every budget of its chain, or in none.

    Raises:
        BudgetRefused: it does not fit one of them.
        RuntimeError: called inside a transaction, where nothing is committed yet.
        LookupError: a budget of the chain is not there.
    """
    [outcome] = reserve_many([hold])
    if outcome.refusal is not None:
        raise outcome.refusal.error()
    return outcome


def reserve_many(holds: Sequence[Hold]) -> list[Reserved]:
    """Holds many in one short transaction, each whole or not at all, first come, first served.

    One that does not fit is refused, and those behind it may still fit. A key that is known is not held again.

    Raises:
        RuntimeError, LookupError: as for ``reserve``.
    """
    wanted = {hold.key: hold for hold in reversed(holds)}
    wanted = {hold.key: wanted[hold.key] for hold in holds}
    if not wanted:
        return []
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        # 1. Take the keys. A second call with the same key waits here, and then finds it taken.
        fresh = _take(cursor, wanted.values())
        outcomes = _known(cursor, [key for key in wanted if key not in fresh])
        # 2. Lock the balances: from here to the commit no other transaction moves them.
        mine = [hold for key, hold in wanted.items() if key in fresh]
        balances = lock(cursor, {budget for hold in mine for budget in hold.chain.budgets}) if mine else {}
        # 3. Decide one by one.
        refused: dict[str, LedgerRefusal] = {}
        moves: list[Move] = []
        held_micros, lately_micros = dict.fromkeys(balances, 0), dict.fromkeys(balances, 0)
        for hold in mine:
            refusal = _refusal(hold, balances, held_micros, lately_micros)
            if refusal is not None:
                refused[hold.key] = refusal
                continue
            for budget in hold.chain.budgets:
                held_micros[budget] += hold.amount_micros
            paced_micros = hold.amount_micros if hold.paced else 0
            lately_micros[hold.chain.organization_budget] += paced_micros
            move = Move(
                fresh[hold.key],
                hold.chain.budgets,
                EntryKind.RESERVE,
                reserved_micros=hold.amount_micros,
                paced_micros=paced_micros,
            )
            moves.append(move)
        # 4. Give back the keys of what was refused: asked again, it may fit.
        if refused:
            _refuse(cursor, refused, fresh, balances)
        post(cursor, balances, moves)
    for key in fresh:
        refusal = refused.get(key)
        outcomes[key] = Reserved(key, refusal=refusal) if refusal else Reserved(key, HoldState.HELD, fresh=True)
    return [outcomes[hold.key] for hold in holds]


def _take(cursor: Any, holds: Iterable[Hold]) -> dict[str, int]:
    """The ids of the reservations that were made, by key."""
    rows = [
        (
            hold.key,
            hold.chain.organization_id,
            hold.chain.agent_id,
            hold.chain.job_id,
            hold.chain.organization_budget,
            hold.chain.agent_budget,
            hold.chain.job_budget,
            hold.amount_micros,
            storable(hold.purpose, 20),
            storable(hold.model, 200),
            hold.iteration,
            storable(hold.rollout),
            hold.lease,
        )
        for hold in holds
    ]
    cursor.execute(INSERT, [list(column) for column in zip(*rows, strict=True)])
    return dict(cursor.fetchall())


def _known(cursor: Any, keys: Sequence[str]) -> dict[str, Reserved]:
    if not keys:
        return {}
    cursor.execute("SELECT key, state FROM budgets_reservation WHERE key = ANY(%s)", [list(keys)])
    return {key: Reserved(key, state) for key, state in cursor.fetchall()}


def _refusal(
    hold: Hold, balances: dict[int, Balance], held_micros: dict[int, int], lately_micros: dict[int, int]
) -> LedgerRefusal | None:
    """The first budget of the chain without room for this hold on top of what this batch ``held_micros`` already; then
    its organisation's rate, of which this batch took ``lately_micros`` already."""
    if hold.late:
        return None
    for one in hold.chain.budgets:
        balance = balances[one]
        if not balance.fits(held_micros[one] + hold.amount_micros):
            reserved_micros = balance.reserved_micros + held_micros[one]
            # Only a limit refuses: a budget without one has its debt paid at once.
            limit_micros, spent_micros = balance.limit_micros or 0, balance.spent_micros + balance.debt_micros
            return LedgerRefusal(one, balance.scope, limit_micros, spent_micros, reserved_micros, hold.amount_micros)
    one = hold.chain.organization_budget
    balance, level_micros = balances[one], balances[one].level_micros + lately_micros[one]
    if hold.paced and (wait := balance.wait(hold.amount_micros, lately_micros[one])):
        return LedgerRefusal(one, balance.scope, balance.rate_micros or 0, level_micros, 0, hold.amount_micros, wait)
    return None


def _refuse(
    cursor: Any, refused: dict[str, LedgerRefusal], fresh: dict[str, int], balances: dict[int, Balance]
) -> None:
    cursor.execute("DELETE FROM budgets_reservation WHERE id = ANY(%s::bigint[])", [[fresh[key] for key in refused]])
    # Used up: nearly all is spent, and the call would not fit even if every other one in flight came to nothing. The
    # last cents are never spent exactly, so that the threshold of 100 % alone would not be reached. A dear call that a
    # budget with much left refuses is its job's matter and no news of the budget.
    used_up = {
        no.budget
        for no in refused.values()
        if not no.wait
        and no.spent_micros + no.wanted_micros > no.limit_micros
        and 100 * no.spent_micros >= NEARLY_ALL * no.limit_micros
    }
    alerts_raise(cursor, [Alert(balances[one], 100) for one in used_up])
