"""The effect that another limit would have had on the charges of the last months."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import QuerySet

from agentcore_site.lib.figures import counted
from agentcore_site.lib.money_format import money, shares
from agentcore_site.lib.months import month_start
from budgets.ledger.accounts import month_of
from budgets.limit_replay import CallSum, Movement, Replay, replay
from budgets.models import Budget, EntryKind, LedgerEntry, Scope
from budgets.selectors import COLUMN

MONTHS: Final = 3
MOST_ENTRIES: Final = 500_000  # of a month: a second or two
SHOWN_GROUPS: Final = 5
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LimitEffect:
    """Of one period. ``replay`` is None where the period has more than ``MOST_ENTRIES`` entries."""

    title: str
    replay: Replay | None

    @property
    def text(self) -> str:
        """The effect in a sentence."""
        if self.replay is None:
            return f"More than {MOST_ENTRIES:,} entries: too many to replay on a page."
        made, refused = self.replay.made, self.replay.refused
        if not made.calls:
            return "No call was made."
        if not refused.calls:
            return f"Nothing: all {counted(made.calls, 'call')} for {money(made.cost_micros)} fit."
        _, part, whole = shares(refused.cost_micros, made.cost_micros)
        first = f" The first was refused on {self.replay.first_refused:%-d %b %Y, %H:%M} UTC."
        return f"{refused.calls:,} of {counted(made.calls, 'call')}, {part} of {whole}.{first}"

    @property
    def groups(self) -> list[tuple[str, CallSum]]:
        """The models and purposes with the most refused money."""
        found = self.replay.by_group if self.replay else {}
        return sorted(found.items(), key=lambda one: (-one[1].cost_micros, -one[1].calls, one[0]))[:SHOWN_GROUPS]


def limit_effects(budget: Budget, limit_micros: int) -> list[LimitEffect]:
    """Of the owner's last three months, the newest first; of a job, whose budget is a total, in all. Checks no
    rights."""
    if budget.scope == Scope.JOB:
        return [_effect("In all", budget, limit_micros)]
    months = [month_of()]
    while len(months) < MONTHS:
        months.append((months[-1] - DAY).replace(day=1))
    mine = Budget.objects.filter(owner_id=budget.owner_id, organization_id=budget.organization_id)
    rows = {one.period_start: one for one in mine.filter(period_start__in=months)}
    return [
        _effect(f"{month:%B %Y}", rows[month], limit_micros)
        if month in rows
        else LimitEffect(f"{month:%B %Y}", Replay())
        for month in months
    ]


def _effect(title: str, budget: Budget, limit_micros: int) -> LimitEffect:
    rows = _entries(budget)
    if rows[: MOST_ENTRIES + 1].count() > MOST_ENTRIES:
        return LimitEffect(title, None)
    return LimitEffect(title, replay(_movements(rows), limit_micros))


def _entries(budget: Budget) -> QuerySet[LedgerEntry]:
    """The entries of a budget, by the columns that have an index."""
    rows = LedgerEntry.objects.filter(
        organization_id=budget.organization_id, **{COLUMN[Scope(budget.scope)]: budget.pk}
    )
    if budget.scope == Scope.JOB:
        return rows.filter(job_id=budget.owner_id)
    return rows.filter(at__gte=month_start(budget.period_start) - DAY)  # clocks of hosts differ a little


def _movements(rows: QuerySet[LedgerEntry]) -> Iterator[Movement]:
    columns = ("at", "reservation_id", "kind", "spent_delta_micros", "debt_delta_micros", "reserved_delta_micros")
    found = rows.order_by("id").values_list(*columns, "model", "purpose").iterator(chunk_size=5_000)
    for at, reservation, kind, spent, debt, reserved, model, purpose in found:
        group = ", ".join(filter(None, (model, purpose))) or "unknown model"
        yield Movement(at, reservation, kind == EntryKind.RESERVE, spent + debt, reserved, group)
