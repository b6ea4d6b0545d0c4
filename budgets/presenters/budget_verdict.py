"""A budget in one sentence, and its curve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final

from django.db.models import F, Max, Min, Sum
from django.db.models.functions import Trunc

from agentcore_site.console.figures import DrawnFigure, FigureColumn
from agentcore_site.lib.money import MICROS
from agentcore_site.lib.money_format import money, shares
from agentcore_site.lib.months import month_after
from budgets.forecasting import Forecast
from budgets.ledger.accounts import month_over
from budgets.models import Budget, LedgerEntry, Scope
from budgets.selectors import budget_forecast, daily

DAY = timedelta(days=1)
MONTHLY: Final = (
    "calls are refused and jobs pause until the limit is raised or the next month begins; then they go on by themselves"
)
NOTHING_LEFT: Final[dict[str, str]] = {
    Scope.JOB: "calls are refused and jobs pause until the limit is raised",
    Scope.PLAYGROUND: "its calls are refused until the limit is raised or the next month begins",
}


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
        text += f" Nothing is left: {NOTHING_LEFT.get(budget.scope, MONTHLY)}."
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


# -- the curve ---------------------------------------------------------------------------------------------------------

# A limit that is further away than this many times what was spent would press the curve flat: it is only named.
FAR: Final = 6


def _steps(budget: Budget) -> tuple[timedelta, list[tuple[datetime, int]]]:
    """The length of a job's steps, by how long the job took, and (beginning, micro-dollars) of each with a call."""
    rows = LedgerEntry.objects.filter(
        job_id=budget.owner_id, organization_id=budget.organization_id, job_budget_id=budget.id
    ).exclude(kind="reserve")
    ends = rows.aggregate(first=Min("at"), last=Max("at"))
    if ends["first"] is None:
        return timedelta(minutes=1), []
    took = ends["last"] - ends["first"]
    size, unit = ("minute", timedelta(minutes=1)) if took <= timedelta(hours=3) else ("hour", timedelta(hours=1))
    if took > timedelta(days=5):
        size, unit = "day", DAY
    sums = rows.annotate(step=Trunc("at", size, tzinfo=UTC)).values("step")
    spent = sums.annotate(cost_micros=Sum(F("spent_delta_micros") + F("debt_delta_micros"))).order_by("step")
    return unit, [(row["step"], int(row["cost_micros"])) for row in spent]


def spending_figure(budget: Budget, forecast: Forecast | None = None) -> DrawnFigure | None:
    """Spending over time against the limit: of a month by days, with the forecast to its end; of a job in steps that
    fit how long it took. None: nothing was spent."""
    rows = _sums(budget)
    spent_micros = budget.spent_micros + budget.debt_micros
    if not spent_micros or not rows:
        return None
    rows[-1][1] = spent_micros / MICROS  # a call that was settled after its month is still the month's
    monthly = budget.scope != Scope.JOB
    columns = [FigureColumn("Day" if monthly else "Time", "moment"), FigureColumn("Spent in all", "usd")]
    if monthly and rows[-1][0] < (last := month_after(budget.period_start) - DAY):
        rows.append([last, None])
    limit_micros, note = budget.limit_micros, ""
    if limit_micros is not None and limit_micros > FAR * spent_micros:
        note = f"The limit of {money(limit_micros)} is far above, and not drawn."
    elif limit_micros is not None:
        columns.append(FigureColumn("Limit", "usd", "dashed"))
        rows = [[*row, limit_micros / MICROS] for row in rows]
    if forecast is not None and forecast.days and rows[-1][1] is None:
        columns.append(FigureColumn("At this pace", "usd", "pace"))
        ends = {"": forecast.middle_micros}
        if forecast.low_micros is not None and forecast.high_micros is not None:
            columns += [FigureColumn("90 % range from", "usd", "low"), FigureColumn("to", "usd", "high")]
            ends |= {"low": forecast.low_micros, "high": forecast.high_micros}
        for row in rows[:-2]:
            row += [None for _ in ends]
        rows[-2] += [spent_micros / MICROS for _ in ends]
        rows[-1] += [amount_micros / MICROS for amount_micros in ends.values()]
    title = f"Spending of {budget.period_start:%B %Y}" if monthly else "Spending of the job"
    return DrawnFigure(title, columns, rows, note=note, axis="US dollars")


def _sums(budget: Budget) -> list[list[Any]]:
    """Rows of a moment and the dollars spent until then."""
    if budget.scope != Scope.JOB:
        start = budget.period_start
        booked: list[Any] = daily(budget, start, min(now().date(), month_after(start) - DAY))
    else:
        unit, steps = _steps(budget)
        booked = [(steps[0][0], 0), *((step + unit, amount_micros) for step, amount_micros in steps)] if steps else []
    sums = accumulate(amount_micros for _, amount_micros in booked)
    return [[moment, total_micros / MICROS] for (moment, _), total_micros in zip(booked, sums, strict=True)]
