"""Many jobs as parallel coordinates: each is a line through its settings and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.console.svg import Coordinate, ParallelLine, parallel
from agentcore_site.lib.figures import spelled
from agentcore_site.lib.money import dollars
from agentcore_site.templatetags import console
from training.models import TrainingRun
from training.presenters.comparisons import flattened
from training.presenters.panel import success

MOST_DRAWN: Final = 150
MOST_AXES: Final = 7  # of settings; more are not readable
MOST_WORDS: Final = 12  # different values of a setting that is no number
# Settings of the run's operation, which do not change what it learns, and the seed.
LEFT_OUT: Final = {
    "seed",
    "version",
    "checkpoint_every",
    "max_concurrent_rollouts",
    "max_budget_usd",
    "max_monthly_budget_usd",
}


@dataclass(frozen=True, slots=True)
class OutcomeAxis:
    title: str
    unit: str
    read: Callable[[TrainingRun], float | None]


def _success(run: TrainingRun) -> float | None:
    found = success(run)
    return None if found is None else found.now


OUTCOMES: Final = (
    OutcomeAxis("spent", "usd", lambda run: dollars(run.spent_micros)),
    OutcomeAxis("success", "rate", _success),
    OutcomeAxis("proven gain", "points", lambda run: run.verdict.get("improvement")),
)


def drawn(runs: Sequence[TrainingRun]) -> dict[str, Any]:
    """The picture, and the same as a table, the best jobs first. ``settings`` are those that differ between the jobs,
    most different values first; ``left_out`` counts the settings that do not fit."""
    flat = [flattened(run.configuration.as_dict()) for run in runs]
    varied = _varied(flat)
    shown = varied[:MOST_AXES]
    outcomes = [outcome for outcome in OUTCOMES if len({outcome.read(run) for run in runs} - {None}) > 1]
    settings = [Coordinate(spelled(name), [_value(one.get(name)) for one in flat]) for name in shown]
    results = [_coordinate(outcome, runs) for outcome in outcomes]
    ranks = _ranks([_success(run) for run in runs])
    lines = [ParallelLine(f"{run.job.title}, {run.agent.name}", rank) for run, rank in zip(runs, ranks, strict=True)]
    best_first = sorted(range(len(runs)), key=lambda i: -(_success(runs[i]) or -1.0))
    rows = [
        {
            "run": runs[i],
            "settings": [(setting.title, setting.values[i]) for setting in settings],
            "results": [(outcome.title, outcome.unit, outcome.read(runs[i])) for outcome in outcomes],
        }
        for i in best_first
    ]
    return {
        "picture": parallel([*settings, *results], lines) if len(runs) > 1 and settings + results else None,
        "settings": [setting.title for setting in settings],
        "outcomes": [outcome.title for outcome in outcomes],
        "rows": rows,
        "left_out": len(varied) - len(shown),
    }


def _value(value: Any) -> Any:
    """Words for booleans; other values unchanged. None, for a missing setting, has no place on the axis."""
    return console.shown(value) if isinstance(value, bool) else value


def _coordinate(outcome: OutcomeAxis, runs: Sequence[TrainingRun]) -> Coordinate:
    """Shares are drawn in per cent, as elsewhere."""
    title, factor = {"rate": (f"{outcome.title}, %", 100), "points": (f"{outcome.title}, points", 100)}.get(
        outcome.unit, (outcome.title, 1)
    )
    values = (outcome.read(run) for run in runs)
    return Coordinate(title, [None if value is None else factor * value for value in values])


def _varied(flat: Sequence[dict[str, Any]]) -> list[str]:
    """Settings with at least two values among the jobs, which fit on an axis."""
    found: list[tuple[int, str]] = []
    for name in dict.fromkeys(name for one in flat for name in one):
        values = [one.get(name) for one in flat]
        kinds = {repr(value) for value in values}
        numbers = all(isinstance(value, int | float) for value in values if value is not None)
        if name not in LEFT_OUT and len(kinds) > 1 and (numbers or len(kinds) <= MOST_WORDS):
            found.append((-len(kinds), name))
    return [name for _, name in sorted(found)]


def _ranks(values: Sequence[float | None]) -> list[int | None]:
    """The jobs' ranks by success, from 0 (worst) to 4 (best); None without a measured success."""
    known = sorted(value for value in values if value is not None)
    last = max(len(known) - 1, 1)
    return [None if value is None else round(4 * known.index(value) / last) for value in values]
