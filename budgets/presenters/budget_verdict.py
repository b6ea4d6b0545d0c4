"""A budget in one sentence, and its curve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from django.db.models import F, Max, Min, Sum
from django.db.models.functions import Trunc

from agentcore_site.console.figures import DrawnFigure, FigureColumn
from agentcore_site.lib.money import MICROS
from agentcore_site.lib.money_format import money, shares
from agentcore_site.lib.months import month_after
from budgets.forecasting import Forecast
from budgets.ledger.accounts import month_over
from budgets.models import Budget, LedgerEntry, Scope
from budgets.presenters.charts import Curve
from budgets.selectors import budget_forecast, daily

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    text: str
    tone: str  # "", "good", "warn" or "bad"


def now() -> datetime:
    return datetime.now(UTC)


def forecast_of(budget: Budget) -> Forecast | None:
    """The forecast of a running month; a job's total and a month that is over have none."""
    return None if budget.scope == Scope.JOB or month_over(budget) else budget_forecast(budget, now=now)


def verdict(budget: Budget, forecast: Forecast | None = None) -> BudgetVerdict:
    """A sentence of the spending, the limit, the forecast, and what stops."""
    spent_micros = budget.spent_micros + budget.debt_micros
    when = _when(budget)
    if budget.limit_micros is None:
        text = f"{money(spent_micros)} spent {when}; no limit is set"
    else:
        percent, spent, limit = shares(spent_micros, budget.limit_micros)
        text = f"{spent} of {limit} spent {when}" + (f" ({percent} %)" if budget.limit_micros else "")
    text += _pace(budget, forecast)
    tone = _tone(budget, forecast)
    if budget.debt_micros:
        text += f" {money(budget.debt_micros)} of it is owed: nothing more is paid for until the limit is raised."
    elif budget.left_micros == 0 and not month_over(budget):
        text += " Nothing is left: calls are refused and jobs pause until the limit is raised" + (
            "." if budget.scope == Scope.JOB else " or the next month begins; then they go on by themselves."
        )
    return BudgetVerdict(text, tone)


def nothing_yet(limit_micros: int | None) -> BudgetVerdict:
    if limit_micros is None:
        return BudgetVerdict("Nothing was spent this month, and no limit is set.", "")
    return BudgetVerdict(f"Nothing was spent this month of {money(limit_micros)}.", "")


def _when(budget: Budget) -> str:
    if budget.scope == Scope.JOB:
        return "in all"
    return f"in {budget.period_start:%B %Y}" if month_over(budget) else "this month"


def _pace(budget: Budget, forecast: Forecast | None) -> str:
    if forecast is None or not forecast.days:
        return "."
    last = month_after(budget.period_start) - DAY
    text = f"; at this pace {money(forecast.middle_micros)} by {last.day} {last:%B}"
    if (
        forecast.low_micros is not None
        and forecast.high_micros is not None
        and forecast.high_micros > forecast.low_micros
    ):
        text += f" (90 % range {money(forecast.low_micros)} to {money(forecast.high_micros)})"
    return text + (", more than the limit." if forecast.exceeds(budget.limit_micros) else ".")


def _tone(budget: Budget, forecast: Forecast | None) -> str:
    if budget.debt_micros or (budget.left_micros == 0 and not month_over(budget)):
        return "bad"
    if budget.limit_micros and 100 * budget.spent_micros >= 90 * budget.limit_micros:
        return "warn"
    return "warn" if forecast is not None and forecast.exceeds(budget.limit_micros) else ""


# -- curves ------------------------------------------------------------------------------------------------------------


def curve(budget: Budget, forecast: Forecast | None = None) -> Curve | None:
    """The sum over time: of a month by days, of a job in steps that fit how long it took. None: nothing to draw."""
    return _of_job(budget) if budget.scope == Scope.JOB else _of_month(budget, forecast)


def _of_month(budget: Budget, forecast: Forecast | None) -> Curve:
    start, end = budget.period_start, month_after(budget.period_start)
    days = (end - start).days
    moment = now()
    last = min(moment.date(), end - DAY)
    points, marks, total_micros = [(0.0, 0)], [""], 0
    for day, amount_micros in daily(budget, start, last):
        total_micros += amount_micros
        points.append((float((day - start).days + 1), total_micros))
        marks.append(f"{day.day} {day:%B}: {money(amount_micros)}, {money(total_micros)} so far")
    # The last day is not over; and a call that was settled after its month is still the month's.
    elapsed = (moment - datetime(start.year, start.month, start.day, tzinfo=UTC)) / DAY
    points[-1] = (min(float(days), elapsed), budget.spent_micros + budget.debt_micros)
    ticks = [(float(n - 1), f"{n} {start:%b}" if n == 1 else str(n)) for n in (1, 8, 15, 22, 29) if n <= days]
    return Curve(points, float(days), ticks, _spoken(budget, forecast), budget.limit_micros, forecast, marks)


def _of_job(budget: Budget) -> Curve | None:
    (size, unit), steps = _steps(budget)
    if not steps:
        return None
    points, total_micros = [(0.0, 0)], 0
    for step, amount_micros in steps:
        x = (step - steps[0][0]) / unit
        if x > points[-1][0]:
            points.append((x, total_micros))  # flat until the step began
        total_micros += amount_micros
        points.append((x + 1.0, total_micros))
    end = ceil(points[-1][0])
    every = max(1, ceil(end / 5))
    ticks = [(float(n), _after(n, size)) for n in range(0, end + 1, every)]
    return Curve(points, float(end), ticks, _spoken(budget, None), budget.limit_micros)


def _steps(budget: Budget) -> tuple[tuple[str, timedelta], list[tuple[datetime, int]]]:
    """The size of a job's steps, by how long the job took, and (beginning, micro-dollars) of each with a call."""
    rows = LedgerEntry.objects.filter(
        job_id=budget.owner_id, organization_id=budget.organization_id, job_budget_id=budget.id
    ).exclude(kind="reserve")
    ends = rows.aggregate(first=Min("at"), last=Max("at"))
    if ends["first"] is None:
        return ("minute", timedelta(minutes=1)), []
    took = ends["last"] - ends["first"]
    size, unit = ("minute", timedelta(minutes=1)) if took <= timedelta(hours=3) else ("hour", timedelta(hours=1))
    if took > timedelta(days=5):
        size, unit = "day", DAY
    sums = rows.annotate(step=Trunc("at", size, tzinfo=UTC)).values("step")
    spent = sums.annotate(cost_micros=Sum(F("spent_delta_micros") + F("debt_delta_micros"))).order_by("step")
    return (size, unit), [(row["step"], int(row["cost_micros"])) for row in spent]


def spending_figure(budget: Budget) -> DrawnFigure | None:
    """Spending over time against the limit, as a figure with its table: of a month by days, of a job in steps that fit
    how long it took. None: nothing was spent."""
    monthly = budget.scope != Scope.JOB
    rows: list[list[Any]] = []
    total_micros = 0
    if monthly:
        start = budget.period_start
        found: list[Any] = daily(budget, start, min(now().date(), month_after(start) - DAY))
    else:
        (_, unit), steps = _steps(budget)
        found = [(steps[0][0], 0), *((step + unit, amount_micros) for step, amount_micros in steps)] if steps else []
    for moment, amount_micros in found:
        total_micros += amount_micros
        rows.append([moment, total_micros / MICROS])
    if not total_micros:
        return None
    columns = [FigureColumn("Day" if monthly else "Time", "moment"), FigureColumn("Spent in all", "usd")]
    if budget.limit_micros is not None:
        columns.append(FigureColumn("Limit", "usd", "dashed"))
        rows = [[*row, budget.limit_micros / MICROS] for row in rows]
    title = f"Spending of {budget.period_start:%B %Y}" if monthly else "Spending of the job"
    return DrawnFigure(title, columns, rows, note=verdict(budget).text, axis="US dollars")


def _after(n: int, size: str) -> str:
    return "start" if not n else f"{n} {'min' if size == 'minute' else size[0]}"


def _spoken(budget: Budget, forecast: Forecast | None) -> str:
    return f"Spending over time. {verdict(budget, forecast).text}"
