"""The four dashboards as data: their queries, the same for PostgreSQL and ClickHouse, and what each chart shows of it.

A query reads ``warehouse_measure`` (``measures.py``) or ``warehouse_training``. Its answer is a list of rows of
sums, from which ``figures`` makes means, rates and intervals: one arithmetic for both stores.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from agentcore_site.lib.statistics import wilson_interval, z_value
from evaluation.warehouse.measures import COMPONENT, ENDS

Row = dict[str, Any]
Unit = Literal["moment", "text", "agent", "count", "number", "share", "points", "usd", "seconds"]
Shape = Literal["lines", "bars", "table"]
SERIES: Final = 5  # models that a chart has lines for


@dataclass(frozen=True, slots=True)
class DashboardQuestion:
    """The query of a dashboard. ``hourly``: points per hour, else per day (UTC)."""

    organization: uuid.UUID
    since: datetime
    hourly: bool = False
    agent: uuid.UUID | None = None
    purpose: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        given = {"organization": self.organization, "since": self.since, "agent": self.agent, "purpose": self.purpose}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class DashboardQuery:
    """``by`` are the columns that identify its rows; ``at`` is the hour or the day. ``first``: the sum by
    which the largest rows come first; of such a query a few rows may be asked for."""

    sums: Mapping[str, str]
    by: tuple[str, ...] = ()
    only: str = ""
    table: str = "warehouse_measure"
    first: str = ""

    def sql(self, asked: DashboardQuestion, moments: Mapping[str, str], most: int | None = None) -> str:
        """``moments``: by table, the column of a row's moment where it is not its hour. ``most``: of so
        many rows, each of which says in ``groups`` how many there are."""
        keys = {key: ("hour" if asked.hourly else "day") if key == "at" else key for key in self.by}
        sums = self.sums if most is None else {**self.sums, "groups": "COUNT(*) OVER ()"}
        columns = [f"{column} AS {name}" for name, column in {**keys, **sums}.items()]
        moment = moments.get(self.table, "hour")
        where = [
            "organization_id = {organization:UUID}",
            f"{moment} >= {{since:DateTime('UTC')}}",
            *filter(None, [self.only]),
        ]
        if asked.agent:
            where.append("agent_id = {agent:UUID}")
        if asked.purpose and self.table == "warehouse_measure":
            where.append("purpose = {purpose:String}")
        by = ", ".join(keys.values())
        ends = f" GROUP BY {by}" if by else ""
        if most is not None:
            ends += f" ORDER BY {self.first} DESC, {by} LIMIT {most:d}"
        return f"SELECT {', '.join(columns)} FROM {self.table} WHERE {' AND '.join(where)}{ends}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """``interval``: the columns of its ends, which a page draws beside the value instead of writing them."""

    key: str
    title: str
    unit: Unit
    interval: tuple[str, str] | None = None

    @property
    def is_number(self) -> bool:
        return self.unit not in ("text", "agent", "moment")


@dataclass(frozen=True, slots=True)
class DashboardChart:
    """One picture or table: ``made`` turns the query's rows into those that are shown. The first column of a picture is
    the quantity of the x axis. ``band``: whether the next two columns are an interval around the second one."""

    key: str
    title: str
    note: str
    shape: Shape
    query: DashboardQuery
    columns: tuple[ChartColumn, ...]
    made: Callable[[list[Row]], list[Row]]
    band: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    key: str
    title: str
    note: str
    charts: tuple[DashboardChart, ...]


# -- sums --------------------------------------------------------------------------------------------------------------


def _of(measure: str, value: str = "total") -> str:
    return f"SUM(CASE WHEN measure = '{measure}' THEN {value} ELSE 0 END)"


SUMS: Final[dict[str, str]] = {
    "trajectories": _of("success", "n"),
    "successes": _of("success"),
    "errors": _of("error"),
    "cuts": _of("cut_off"),
    "rewarded": _of("reward", "n"),
    "reward_total": _of("reward"),
    "reward_squares": _of("reward", "squares"),
    "step_total": _of("steps"),
    "token_total": _of("tokens"),
    "ms_total": _of("milliseconds"),
    "cost_total": _of("micros"),
}
VALUES: Final = {"counted": "SUM(n)", "summed": "SUM(total)", "squared": "SUM(squares)"}
STARTS: Final[dict[str, str]] = {
    "trainings": "COUNT(*)",
    **{
        status: f"SUM(CASE WHEN status = '{status}' THEN 1 ELSE 0 END)"
        for status in ("completed", "failed", "cancelled")
    },
}
TRAININGS: Final[dict[str, str]] = {
    **STARTS,
    "lived": "SUM(trajectories)",
    "worked": "SUM(worked_ms)",
    "spent": "SUM(cost_micros)",
}

BY_TIME: Final = DashboardQuery(SUMS, ("at",))
BY_AGENT: Final = DashboardQuery(SUMS, ("agent_id",), first="trajectories")
BY_MODEL: Final = DashboardQuery(SUMS, ("agent_id", "model"))
BY_MODEL_AND_TIME: Final = DashboardQuery(SUMS, ("at", "model"))
BY_ARM: Final = DashboardQuery(SUMS, ("agent_id", "arm"), only="purpose = 'evaluation'")
BY_COMPONENT: Final = DashboardQuery(
    VALUES, ("measure",), only=f"SUBSTRING(measure, 1, {len(COMPONENT)}) = '{COMPONENT}'"
)
# Counts alone: PostgreSQL need not read what the trainings cost and lived.
STARTS_BY_TIME: Final = DashboardQuery(STARTS, ("at",), table="warehouse_training")
TRAININGS_BY_AGENT: Final = DashboardQuery(
    TRAININGS, ("agent_id", "place"), table="warehouse_training", first="trainings"
)


def _distribution(measure: str) -> DashboardQuery:
    return DashboardQuery(VALUES, ("bucket",), only=f"measure = '{measure}'")


# -- figures -----------------------------------------------------------------------------------------------------------


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def mean_and_deviation(n: int, total: float, squares: float) -> tuple[float | None, float | None]:
    """The sample's mean and standard deviation; None where there are too few values."""
    if not n:
        return None, None
    mean = total / n
    return mean, math.sqrt(max(0.0, (squares - n * mean * mean) / (n - 1))) if n > 1 else None


def figures(row: Row) -> Row:
    """A row of ``SUMS`` with what they say: rates with Wilson's interval, means with the normal one (95 %)."""
    n, rewarded = int(row["trajectories"]), int(row["rewarded"])
    low, high = wilson_interval(min(max(float(row["successes"]), 0.0), n), n)
    mean, deviation = mean_and_deviation(rewarded, float(row["reward_total"]), float(row["reward_squares"]))
    half = None if deviation is None else z_value(0.95) * deviation / math.sqrt(rewarded)
    cost = float(row["cost_total"]) / 1e6
    return row | {
        "trajectories": n,
        "success_rate": _ratio(float(row["successes"]), n),
        "success_low": low if n else None,
        "success_high": high if n else None,
        "error_rate": _ratio(float(row["errors"]), n),
        "cut_off_rate": _ratio(float(row["cuts"]), n),
        "rewarded": rewarded,
        "reward_mean": mean,
        "reward_deviation": deviation,
        "reward_low": None if mean is None or half is None else mean - half,
        "reward_high": None if mean is None or half is None else mean + half,
        "steps_mean": _ratio(float(row["step_total"]), n),
        "tokens_mean": _ratio(float(row["token_total"]), n),
        "seconds_mean": _ratio(float(row["ms_total"]) / 1000, n),
        "cost_usd": cost,
        "cost_each_usd": _ratio(cost, n),
    }


def lived(rows: list[Row]) -> list[Row]:
    """Rows with figures, without those of which nothing was lived."""
    return [figures(row) for row in rows if row["trajectories"]]


def by_most(rows: list[Row]) -> list[Row]:
    return sorted(lived(rows), key=lambda row: -row["trajectories"])


def trained_beside_untrained(rows: list[Row]) -> list[Row]:
    """By agent, how both arms of its held-out comparisons did."""
    found: dict[Any, Row] = {}
    for row in lived(rows):
        if row["arm"] in ("baseline", "trained"):
            one = found.setdefault(row["agent_id"], {"agent_id": row["agent_id"]})
            one |= {f"{row['arm']}_{name}": row[name] for name in ("trajectories", "success_rate", "reward_mean")}
    for one in found.values():
        before, after = one.get("baseline_success_rate"), one.get("trained_success_rate")
        one["gain"] = None if before is None or after is None else after - before
    return list(found.values())


def success_of_models(rows: list[Row]) -> list[Row]:
    """A column of each of the models with the most trajectories; the rest has none."""
    known = lived(rows)
    counts: dict[str, int] = {}
    for row in known:
        counts[row["model"]] = counts.get(row["model"], 0) + row["trajectories"]
    shown = sorted(counts, key=lambda name: (-counts[name], name))[:SERIES]
    found: dict[Any, Row] = {}
    for row in known:
        if row["model"] in shown:
            found.setdefault(row["at"], {"at": row["at"]})[row["model"] or "no model"] = row["success_rate"]
    return list(found.values())


def starts(rows: list[Row]) -> list[Row]:
    return [row | {name: int(row[name]) for name in STARTS} for row in rows]


def trainings(rows: list[Row]) -> list[Row]:
    found = [
        row
        | {"lived": int(row["lived"]), "seconds": float(row["worked"]) / 1000, "cost_usd": float(row["spent"]) / 1e6}
        for row in starts(rows)
    ]
    return sorted(found, key=lambda row: -row["trainings"])


def _gapless(rows: list[Row]) -> list[Row]:
    """Buckets from the first to the last, also those of which nothing fell into."""
    known = {int(row["bucket"]): int(row["counted"]) for row in rows}
    if not known:
        return []
    return [{"bucket": bucket, "counted": known.get(bucket, 0)} for bucket in range(min(known), max(known) + 1)]


def tenths(rows: list[Row]) -> list[Row]:
    """Named by where a bucket begins."""

    def name(bucket: int) -> str:
        if abs(bucket) == ENDS:
            return f"{'≥' if bucket > 0 else '<'} {(bucket if bucket > 0 else bucket + 1) / 10:g}"
        return f"{bucket / 10:g}"

    return [{"from": name(row["bucket"]), "trajectories": row["counted"]} for row in _gapless(rows)]


def bits(rows: list[Row], unit: float = 1.0) -> list[Row]:
    """Named by where a bucket begins: 0, 1, 2, 4, 8 …, in units of so many."""

    def name(bucket: int) -> str:
        begins = (2 ** (bucket - 1) if bucket else 0) / unit
        return f"{begins:,.0f}" if begins >= 100 else f"{begins:.3g}"

    return [{"from": name(row["bucket"]), "trajectories": row["counted"]} for row in _gapless(rows)]


def components(rows: list[Row]) -> list[Row]:
    found = []
    for row in rows:
        mean, deviation = mean_and_deviation(int(row["counted"]), float(row["summed"]), float(row["squared"]))
        name = row["measure"].removeprefix(COMPONENT)
        found.append({"component": name, "rewards": int(row["counted"]), "mean": mean, "deviation": deviation})
    return sorted(found, key=lambda row: (-row["rewards"], row["component"]))


# -- charts ------------------------------------------------------------------------------------------------------------

AT: Final = ChartColumn("at", "When", "moment")
AGENT: Final = ChartColumn("agent_id", "Agent", "agent")
TRAJECTORIES: Final = ChartColumn("trajectories", "Trajectories", "count")
SUCCESS: Final = ChartColumn("success_rate", "Success", "share", ("success_low", "success_high"))
SUCCESS_LOW: Final = ChartColumn("success_low", "from", "share")
SUCCESS_HIGH: Final = ChartColumn("success_high", "to", "share")
REWARD: Final = ChartColumn("reward_mean", "Reward", "number")
REWARD_LOW: Final = ChartColumn("reward_low", "from", "number")
REWARD_HIGH: Final = ChartColumn("reward_high", "to", "number")
DEVIATION: Final = ChartColumn("reward_deviation", "Deviation", "number")
COST: Final = ChartColumn("cost_usd", "Cost", "usd")
COST_EACH: Final = ChartColumn("cost_each_usd", "Cost per trajectory", "usd")
SECONDS: Final = ChartColumn("seconds_mean", "Duration", "seconds")
STEPS: Final = ChartColumn("steps_mean", "Steps", "number")
TOKENS: Final = ChartColumn("tokens_mean", "Tokens", "count")
ERRORS: Final = ChartColumn("error_rate", "Errors", "share")
CUT_OFF: Final = ChartColumn("cut_off_rate", "Cut off", "share")
FROM: Final = ChartColumn("from", "From", "text")
STATUSES: Final = (
    ChartColumn("trainings", "Started", "count"),
    ChartColumn("completed", "Completed", "count"),
    ChartColumn("failed", "Failed", "count"),
    ChartColumn("cancelled", "Cancelled", "count"),
)

TRAINING: Final = Dashboard(
    "training",
    "Training overview",
    "Training jobs, their results and their cost.",
    (
        DashboardChart("trainings", "Training jobs", "By start time.", "bars", STARTS_BY_TIME,
            (AT, *STATUSES), starts),
        DashboardChart("collected", "Trajectories", "Number of trajectories.", "bars", BY_TIME,
            (AT, TRAJECTORIES), lived),
        DashboardChart("success", "Success", "Share of trajectories that succeeded, with its 95 % interval.", "lines",
            BY_TIME, (AT, SUCCESS, SUCCESS_LOW, SUCCESS_HIGH), lived, band=True),
        DashboardChart("cost", "Cost", "Cost of the model calls.", "bars", BY_TIME, (AT, COST), lived),
        DashboardChart("agents", "By agent", "Training jobs of this site and external services, most first.", "table",
            TRAININGS_BY_AGENT, (AGENT, ChartColumn("place", "Where", "text"), *STATUSES,
            ChartColumn("lived", "Trajectories", "count"), ChartColumn("seconds", "Work time", "seconds"), COST),
            trainings),
    ),
)  # fmt: skip
MODELS: Final = Dashboard(
    "models",
    "Model comparison",
    "Success, reward and cost of each model, and the gain by training.",
    (
        DashboardChart("models", "Models", "Of each agent, the most used first; intervals of 95 %.", "table", BY_MODEL,
            (AGENT, ChartColumn("model", "Model", "text"), TRAJECTORIES, SUCCESS, SUCCESS_LOW, SUCCESS_HIGH, REWARD,
            REWARD_LOW, REWARD_HIGH, COST_EACH, SECONDS, TOKENS), by_most),
        DashboardChart("over_time", "Success over time", "Of the five most used models.", "lines", BY_MODEL_AND_TIME,
            (AT,), success_of_models),
        DashboardChart("arms", "Trained and untrained", "The same held-out queries, by both.", "table", BY_ARM,
            (AGENT, ChartColumn("baseline_trajectories", "Untrained", "count"),
            ChartColumn("baseline_success_rate", "Untrained success", "share"),
            ChartColumn("trained_trajectories", "Trained", "count"),
            ChartColumn("trained_success_rate", "Trained success", "share"),
            ChartColumn("gain", "Difference in points", "points")),
            trained_beside_untrained),
    ),
)  # fmt: skip
QUALITY: Final = Dashboard(
    "trajectories",
    "Trajectory quality",
    "Outcomes, lengths and errors of trajectories.",
    (
        DashboardChart("ends", "End of trajectories", "Shares of all trajectories.", "lines", BY_TIME,
            (AT, SUCCESS, ERRORS, CUT_OFF), lived),
        DashboardChart("steps", "Steps", "Trajectories by number of steps.", "bars",
            _distribution("steps"), (FROM, TRAJECTORIES), bits),
        DashboardChart("seconds", "Seconds", "Trajectories by duration.", "bars",
            _distribution("milliseconds"), (FROM, TRAJECTORIES), lambda rows: bits(rows, 1000)),
        DashboardChart("tokens", "Tokens", "Trajectories by number of tokens.", "bars",
            _distribution("tokens"), (FROM, TRAJECTORIES), bits),
        DashboardChart("agents", "By agent", "", "table", BY_AGENT,
            (AGENT, TRAJECTORIES, SUCCESS, ERRORS, CUT_OFF, STEPS, SECONDS, TOKENS), by_most),
    ),
)  # fmt: skip
REWARDS: Final = Dashboard(
    "rewards",
    "Rewards",
    "Rewards of trajectories, and their components.",
    (
        DashboardChart("distribution", "Distribution", "Number of rewards of this value, or up to a tenth higher.",
            "bars", _distribution("reward"), (FROM, TRAJECTORIES), tenths),
        DashboardChart("over_time", "Mean over time", "With its 95 % interval.", "lines", BY_TIME,
            (AT, REWARD, REWARD_LOW, REWARD_HIGH), lived, band=True),
        DashboardChart("components", "Components", "Of all rewards that have them.", "table", BY_COMPONENT,
            (ChartColumn("component", "Component", "text"), ChartColumn("rewards", "Rewards", "count"),
            ChartColumn("mean", "Mean", "number"), ChartColumn("deviation", "Deviation", "number")), components),
        DashboardChart("agents", "By agent", "", "table", BY_AGENT,
            (AGENT, ChartColumn("rewarded", "Rewarded", "count"), REWARD, REWARD_LOW, REWARD_HIGH, DEVIATION), by_most),
    ),
)  # fmt: skip
DASHBOARDS: Final[dict[str, Dashboard]] = {one.key: one for one in (TRAINING, MODELS, QUALITY, REWARDS)}


def columns_of(chart: DashboardChart, rows: Sequence[Row]) -> tuple[ChartColumn, ...]:
    """The chart's columns; of lines by model, one for each model that has rows."""
    if chart.made is not success_of_models:
        return chart.columns
    names = dict.fromkeys(name for row in rows for name in row if name != "at")
    return (*chart.columns, *(ChartColumn(name, name, "share") for name in names))
