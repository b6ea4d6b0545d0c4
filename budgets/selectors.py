"""Reads of budgets, scoped to the actor: chains, what is left, what was spent on what, and what is to come."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final

from django.db.models import Count, DateTimeField, F, Func, Q, QuerySet, Sum, Value
from django.db.models.functions import TruncDate

from agentcore_site.lib.errors import Insufficient, Invalid, Missing
from agentcore_site.lib.money_format import apart, money
from agentcore_site.lib.months import month_after
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.forecasting import Forecast, forecast
from budgets.ledger.accounts import (
    BudgetOwner,
    budgets_of,
    limit_standing_micros,
    month_of,
    owners,
    playground_owner,
)
from budgets.ledger.days import DAY, last_summed, midnight
from budgets.ledger.reserving import NEARLY_ALL
from budgets.models import (
    AlertKind,
    Budget,
    BudgetAlert,
    BudgetLimit,
    DayGroup,
    LedgerDay,
    LedgerEntry,
    ModelPrice,
    Scope,
)
from budgets.usage_files.comparison import Comparison, LedgerUse, compared
from budgets.usage_files.reading import UsageFile, joined, read_usage

NAMES: Final = {
    Scope.ORGANIZATION: "your organisation's",
    Scope.AGENT: "this agent's",
    Scope.JOB: "this job's",
    Scope.PLAYGROUND: "the playground's",
}
COLUMN: Final = {
    Scope.ORGANIZATION: "organization_budget_id",
    Scope.AGENT: "agent_budget_id",
    Scope.JOB: "job_budget_id",
    Scope.PLAYGROUND: "job_budget_id",
}
BY: Final = {"job": "job_id", "agent": "agent_id", "model": "model", "purpose": "purpose", "day": "day"}


@dataclass(frozen=True, slots=True)
class Headroom:
    """The room left in one budget of a chain. ``budget`` is None where nothing was spent yet."""

    scope: str
    limit_micros: int | None
    spent_micros: int
    reserved_micros: int
    debt_micros: int
    budget: Budget | None = None

    @property
    def left_micros(self) -> int | None:
        taken_micros = self.spent_micros + self.reserved_micros + self.debt_micros
        return None if self.limit_micros is None else max(0, self.limit_micros - taken_micros)


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of one job, agent, model, purpose or day."""

    key: Any
    cost_micros: int
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    estimated: int


def budgets_visible(actor: Actor, *, month: date | None = None) -> QuerySet[Budget]:
    """The budgets of the actor's organisations; of one month and the jobs' totals, if a month is given."""
    rows = Budget.objects.visible_to(actor).select_related("organization", "job")
    return rows.filter(Q(period_start=month) | Q(scope=Scope.JOB)) if month else rows


def budget_get(actor: Actor, budget_id: Any) -> Budget:
    """Raises Missing where it is not there or not the actor's."""
    found = budgets_visible(actor).filter(id=budget_id).first() if str(budget_id).isdecimal() else None
    if found is None:
        raise Missing("There is no such budget.")
    return found


def limits_visible(actor: Actor, budget: Budget | None = None) -> QuerySet[BudgetLimit]:
    """The history of limits, newest first."""
    rows = BudgetLimit.objects.visible_to(actor)
    return rows.filter(owner_id=budget.owner_id, organization_id=budget.organization_id) if budget else rows


def alerts_visible(actor: Actor) -> QuerySet[BudgetAlert]:
    return BudgetAlert.objects.visible_to(actor).select_related("budget", "budget__organization", "budget__job")


def alerts_standing(actor: Actor, *, since: datetime, limit: int) -> list[BudgetAlert]:
    """The highest alert of each budget that still is as full as the alert says, newest first. Those of a limit that
    was changed since say nothing about now."""
    rows = alerts_visible(actor).filter(
        created_at__gte=since, kind=AlertKind.THRESHOLD, limit_micros=F("budget__limit_micros")
    )
    highest = rows.order_by("budget_id", "-threshold").distinct("budget_id")
    full = [alert for alert in highest if 100 * (alert.budget.share or 0.0) >= min(alert.threshold, NEARLY_ALL)]
    return sorted(full, key=lambda one: one.created_at, reverse=True)[:limit]


def ledger_visible(actor: Actor) -> QuerySet[LedgerEntry]:
    return LedgerEntry.objects.visible_to(actor)


def prices_visible(actor: Actor) -> QuerySet[ModelPrice]:
    """The prices for all, and those of the actor's organisations."""
    who = Actor.of(actor)
    if not who.may_read:
        return ModelPrice.objects.none()
    return ModelPrice.objects.filter(Q(organization=None) | Q(organization__in=who.organization_ids))


# -- room --------------------------------------------------------------------------------------------------------------


def budget_chain(
    organization_id: uuid.UUID,
    *,
    agent_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
    playground: bool = False,
) -> list[Headroom]:
    """The room in each budget that a call would be charged to, outermost first. Opens no budget."""
    return [_room(owner) for owner in owners(organization_id, agent_id, job_id, playground=playground)]


def playground_room(organization_id: uuid.UUID) -> Headroom:
    """The month of an organisation's playground."""
    return _room(playground_owner(organization_id))


def budget_preflight(
    *,
    organization_id: uuid.UUID,
    wanted_micros: int,
    agent_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
    job_limit_micros: int | None = None,
) -> list[Headroom]:
    """The chain, if ``wanted_micros`` fit each budget of it. ``job_limit_micros``: of a job that is yet to be made.

    The check holds nothing: other jobs may take the room meanwhile, and each call is checked again.

    Raises:
        Insufficient: one has less left; the message says which and how much, ``fields`` has ``budget``.
    """
    rooms = budget_chain(organization_id, agent_id=agent_id, job_id=job_id)
    if job_id is None and job_limit_micros is not None:
        rooms.append(Headroom(Scope.JOB, job_limit_micros, 0, 0, 0))
    rooms_check(rooms, wanted_micros)
    return rooms


def rooms_check(rooms: Sequence[Headroom], wanted_micros: int) -> None:
    """Raises:
    Insufficient: as ``budget_preflight``."""
    short = [
        room
        for room in rooms
        if room.left_micros is not None and (room.left_micros < wanted_micros or room.debt_micros)
    ]
    if short:
        tightest = min(short, key=lambda room: room.left_micros or 0)
        raise Insufficient(
            _short(tightest, wanted_micros), fields={"budget": f"{money(tightest.left_micros or 0)} is left."}
        )


def _short(room: Headroom, wanted_micros: int) -> str:
    held = f", {money(room.reserved_micros)} on hold" if room.reserved_micros else ""
    debt = f", {money(room.debt_micros)} owed" if room.debt_micros else ""
    most, left = apart(wanted_micros, room.left_micros or 0)
    return (
        f"This may cost {most}, and {NAMES[Scope(room.scope)]} budget has {left} left of"
        f" {money(room.limit_micros or 0)} ({money(room.spent_micros)} spent{held}{debt}). Ask for less, or raise that"
        " budget."
    )


def _room(owner: BudgetOwner) -> Headroom:
    budget = budgets_of(owner).filter(period_start=owner.start(month_of())).first()
    if budget is None:
        return Headroom(owner.scope, limit_standing_micros(owner), 0, 0, 0)
    return Headroom(
        owner.scope, budget.limit_micros, budget.spent_micros, budget.reserved_micros, budget.debt_micros, budget
    )


# -- what it was spent on ----------------------------------------------------------------------------------------------


def breakdown(
    actor: Actor,
    *,  # the filters of the REST request
    by: str,
    since: date | None = None,
    until: date | None = None,
    organization_id: uuid.UUID | None = None,
    agent_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
) -> list[Spending]:
    """Cost and tokens by "job", "agent", "model", "purpose" or "day" (UTC), from ``since`` to ``until``, both
    included; by day in order of time, else the most expensive first. The sum of the costs is what the budgets booked.

    Raises:
        Invalid: another ``by``.
    """
    if by not in BY:
        raise Invalid(f"by is {by!r}; it is one of {', '.join(BY)}.", fields={"by": f"One of {', '.join(BY)}."})
    rows = between(ledger_visible(actor), since, until)
    for name, value in (("organization_id", organization_id), ("agent_id", agent_id), ("job_id", job_id)):
        rows = rows.filter(**{name: value}) if value is not None else rows
    summed = last_summed([organization_id]) if organization_id and agent_id is None and job_id is None else None
    if summed is None:
        return spending(rows, by)
    days = LedgerDay.objects.visible_to(actor).filter(organization_id=organization_id)
    added = _added([*_of_days(days, by, since, until), *spending(rows.filter(at__gte=midnight(summed + DAY)), by)])
    if by == "day":
        return sorted(added, key=lambda one: one.key)
    return sorted(added, key=lambda one: (-one.cost_micros, one.key is None, one.key))


def _of_days(rows: QuerySet[LedgerDay], by: str, since: date | None, until: date | None) -> list[Spending]:
    """As ``spending``, in no order, of days that are over."""
    if since is not None:
        rows = rows.filter(day__gte=since)
    if until is not None:
        rows = rows.filter(day__lte=until)
    key = "day" if by == "day" else "key"
    grouped = rows.filter(group=by).order_by().values(key).annotate(**SUMS_OF_DAYS)
    ids = by in ("job", "agent")
    return [
        _spending(row | {key: (uuid.UUID(row[key]) if row[key] else None) if ids else row[key]}, key) for row in grouped
    ]


def _added(parts: Iterable[Spending]) -> list[Spending]:
    """One for each key; the parts of a key are added up."""
    found: dict[Any, Spending] = {}
    for part in parts:
        before = found.get(part.key)
        numbers = (getattr(part, name) + (getattr(before, name) if before else 0) for name in AMOUNTS)
        found[part.key] = Spending(part.key, *numbers)
    return [one for one in found.values() if one.calls or one.cost_micros]


def spending(rows: QuerySet[LedgerEntry], by: str) -> list[Spending]:
    """As ``breakdown``, of these entries; checks no rights."""
    grouped = rows.exclude(kind="reserve").annotate(day=TruncDate("at", tzinfo=UTC)).values(BY[by]).annotate(**SUMS)
    order = BY[by] if by == "day" else "-cost_micros"
    found = [_spending(row, BY[by]) for row in grouped.order_by(order, BY[by])]
    return [one for one in found if one.calls or one.cost_micros]


def ledger_use(rows: QuerySet[LedgerEntry], first: date, last: date) -> list[LedgerUse]:
    """Calls by model and quarter of an hour, from the day before ``first`` to the day after ``last``, so that every
    time zone has its days whole; checks no rights."""
    near = between(rows.exclude(kind="reserve"), first - timedelta(days=1), last + timedelta(days=1))
    quarter = Func(
        Value(timedelta(minutes=15)),
        F("at"),
        Value(datetime(2000, 1, 1, tzinfo=UTC)),
        function="date_bin",
        output_field=DateTimeField(),
    )
    charged = Count("id", filter=Q(kind="charge")) - Count("id", filter=Q(kind="refund"))
    grouped: Any = near.annotate(quarter=quarter).values("quarter", "model").annotate(**SUMS, charged=charged)
    return [
        LedgerUse(
            at=row["quarter"],
            model=row["model"],
            cost_micros=int(row["cost_micros"] or 0),
            input_tokens=int(row["inputs"] or 0),
            output_tokens=int(row["outputs"] or 0),
            calls=row["calls"],
            estimated=row["guessed"],
            charged=max(0, row["charged"]),
        )
        for row in grouped.order_by("quarter", "model")
    ]


def usage_compared(
    rows: QuerySet[LedgerEntry], *, files: Iterable[bytes], zone: tzinfo
) -> tuple[Comparison, UsageFile]:
    """A provider's usage exports against these rows of the ledger; checks no rights.

    Raises:
        Invalid, TooLarge: a file can't be read, or two files say the same.
    """
    file = joined([read_usage(content) for content in files])
    days = [line.day for line in file.lines]
    return compared(file.lines, ledger_use(rows, min(days), max(days)), zone), file


def bill_compared(actor: Actor, *, files: Iterable[bytes], zone: tzinfo) -> tuple[Comparison, UsageFile]:
    """A provider's usage exports against the ledger of the actor's organisation.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid, TooLarge: as ``usage_compared``.
    """
    organization = current_organization(actor)
    require(actor, "export", organization)
    return usage_compared(ledger_visible(actor).filter(organization_id=organization.id), files=files, zone=zone)


CALL: Final = Q(kind__in=("settle", "charge"))
SUMS: Final[dict[str, Any]] = {
    "cost_micros": Sum(F("spent_delta_micros") + F("debt_delta_micros")),
    "calls": Count("id", filter=CALL),
    "inputs": Sum("input_tokens"),
    "outputs": Sum("output_tokens"),
    "cached": Sum("cached_tokens"),
    "guessed": Count("id", filter=CALL & Q(estimated=True)),
}
SUMS_OF_DAYS: Final[dict[str, Any]] = {
    "cost_micros": Sum("cost_micros"),
    "calls": Sum("calls"),
    "inputs": Sum("input_tokens"),
    "outputs": Sum("output_tokens"),
    "cached": Sum("cached_tokens"),
    "guessed": Sum("estimated"),
}
AMOUNTS: Final = ("cost_micros", "calls", "input_tokens", "output_tokens", "cached_tokens", "estimated")


def _spending(row: dict[str, Any], key: str) -> Spending:
    return Spending(
        key=row[key],
        cost_micros=int(row["cost_micros"] or 0),
        calls=int(row["calls"]),
        input_tokens=int(row["inputs"] or 0),
        output_tokens=int(row["outputs"] or 0),
        cached_tokens=int(row["cached"] or 0),
        estimated=int(row["guessed"]),
    )


def between(rows: QuerySet[LedgerEntry], since: date | None, until: date | None) -> QuerySet[LedgerEntry]:
    """The entries of these days (UTC), both included."""
    if since is not None:
        rows = rows.filter(at__gte=midnight(since))
    if until is not None:
        rows = rows.filter(at__lt=midnight(until + DAY))
    return rows


def daily(budget: Budget, since: date, until: date) -> list[tuple[date, int]]:
    """(day, micro-dollars booked on it) for each day from ``since`` to ``until``, both included, also empty ones."""
    rows, sums = _entries(budget), {}
    summed = last_summed([budget.organization_id]) if budget.scope == Scope.ORGANIZATION else None
    if summed is not None:
        over = LedgerDay.objects.filter(
            organization_id=budget.organization_id, group=DayGroup.BUDGET, key=str(budget.id)
        )
        sums = dict(over.filter(day__gte=since, day__lte=until).values_list("day", "cost_micros"))
        rows = rows.filter(at__gte=midnight(summed + DAY))
    by_day = between(rows, since, until).order_by().annotate(day=TruncDate("at", tzinfo=UTC)).values("day")
    for row in by_day.annotate(cost=Sum(F("spent_delta_micros") + F("debt_delta_micros"))):
        sums[row["day"]] = int(row["cost"])
    days = (since + timedelta(days=n) for n in range((until - since).days + 1))
    return [(day, sums.get(day, 0)) for day in days]


# -- what is to come ---------------------------------------------------------------------------------------------------


def budget_forecast(budget: Budget, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Forecast:
    """A monthly budget's spending at the end of its month, at the pace of its last seven whole days. Fewer than three
    days give no forecast.

    Raises:
        Invalid: a job's budget has no month.
    """
    if budget.scope == Scope.JOB:
        raise Invalid("A job's budget is a total; only monthly ones are forecast.")
    moment, start = now(), budget.period_start
    end = month_after(start)
    spent_micros = budget.spent_micros + budget.debt_micros
    if moment.date() >= end:
        return forecast(spent_micros, [], 0.0)
    today = moment.date()
    week = daily(budget, max(start, today - timedelta(days=7)), today - timedelta(days=1)) if today > start else []
    # Days before the first call say nothing about the pace.
    while week and not week[0][1]:
        week = week[1:]
    left = (midnight(end) - moment) / timedelta(days=1)
    return forecast(spent_micros, [amount_micros for _, amount_micros in week], left)


def entries_of(actor: Actor, budget: Budget) -> QuerySet[LedgerEntry]:
    """The entries that moved this budget. Totals are read by more people than its lines.

    Raises:
        Forbidden: the actor's role does not read the lines of the ledger.
    """
    require(actor, "data.view", budget.organization_id)
    return _entries(budget) & ledger_visible(actor)


def _entries(budget: Budget) -> QuerySet[LedgerEntry]:
    rows = LedgerEntry.objects.filter(
        organization_id=budget.organization_id, **{COLUMN[Scope(budget.scope)]: budget.id}
    )
    if budget.scope == Scope.PLAYGROUND:  # no index is by its budget
        return rows.filter(job_id=None, at__gte=midnight(budget.period_start))
    # Said twice: the indexes are by the agent and by the job, not by their budgets.
    owner = {Scope.AGENT: "agent_id", Scope.JOB: "job_id"}.get(Scope(budget.scope))
    return rows.filter(**{owner: budget.owner_id}) if owner else rows
