"""Comparison of checkpoints and jobs: figures, differing settings, and shipped lessons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from agentcore_site.lib.money import dollars
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import PolicyCheckpoint, TrainingRun
from training.presenters.panel import success

if TYPE_CHECKING:
    from training.policies.context import ContextPolicy

MOST_JOBS: Final = 6  # as many as have distinct colours


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table of figures, with a value for each thing compared; None where it was not measured.

    ``unit``: as the filter ``unit`` writes it. ``edges``: intervals, where the values have them. ``under``: a word
    below each value.
    """

    title: str
    unit: str
    values: list[Any]
    edges: list[tuple[float, float] | None] | None = None
    under: list[str] | None = None

    @property
    def cells(self) -> list[tuple[Any, tuple[float, float] | None, str]]:
        """Value, interval and word of each."""
        n = len(self.values)
        return list(zip(self.values, self.edges or [None] * n, self.under or [""] * n, strict=True))

    @property
    def measured(self) -> bool:
        return any(value is not None for value in self.values)


def checkpoint_comparison(a: PolicyCheckpoint, b: PolicyCheckpoint) -> dict[str, Any]:
    """``metrics`` are {name, a, b, difference}; ``settings`` are {name, a, b}, only those that differ;
    ``context_differences`` {handle, a, b}, None if one has no context."""
    return {
        "same_bytes": a.sha256 == b.sha256,
        "same_run": a.run_id is not None and a.run_id == b.run_id,
        "metrics": [_metric(name, a, b) for name in _names([_metrics(a), _metrics(b)])],
        "settings": [
            {"name": one["name"], "a": one["values"][0], "b": one["values"][1]}
            for one in settings_that_differ([_config(a), _config(b)])
        ],
        "context_differences": _context_differences(a, b),
    }


def job_figures(runs: Sequence[TrainingRun]) -> list[Figure]:
    """Progress and cost of each job. Figures that no job has are left out."""
    proven = [run.verdict if run.verdict.get("improvement") is not None else {} for run in runs]
    seen = [success(run) for run in runs]
    figures = [
        Figure(
            "Gain, proven on held-out queries",
            "points",
            [one.get("improvement") for one in proven],
            [(one["low"], one["high"]) if None not in (one.get("low"), one.get("high")) else None for one in proven],
        ),
        Figure(
            "Success rate",
            "rate",
            [one and one.now for one in seen],
            [(one.low, one.high) if one else None for one in seen],
            [one.source if one else "" for one in seen],
        ),
        Figure("Before training", "rate", [one and one.baseline for one in seen]),
        Figure("Mean reward, last iteration", "", [run.metrics.get("reward_mean") for run in runs]),
        Figure("Spent", "usd", [dollars(run.spent_micros) for run in runs]),
        Figure("Dollars for a proven point", "usd", [_dollars_a_point(run) for run in runs]),
        Figure("Time at work", "seconds", [run.job.worked_ms / 1000 or None for run in runs]),
        Figure("Iterations", "count", [run.iteration for run in runs]),
        Figure("Trajectories", "count", [run.trajectories for run in runs]),
        Figure("Tokens", "count", [run.tokens or None for run in runs]),
    ]
    return [figure for figure in figures if figure.measured]


def job_settings(runs: Sequence[TrainingRun]) -> list[dict[str, Any]]:
    """In what the jobs were set up differently: agent, data, configuration."""
    return settings_that_differ([_set_up(run) for run in runs])


def settings_that_differ(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """{name, values} of each setting that is not the same in all of them; nested ones by a name with dots."""
    flat = [flattened(config) for config in configs]
    found = ((name, [one.get(name) for one in flat]) for name in _names(flat))
    return [{"name": name, "values": values} for name, values in found if any(value != values[0] for value in values)]


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under one name each: {"a": {"b": 1}} → {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _set_up(run: TrainingRun) -> dict[str, Any]:
    return {
        "agent": run.agent.name,
        "environment": run.environment,
        "environment_options": run.environment_options,
        "dataset": run.dataset.name if run.dataset else None,
        "training_queries": run.n_train,
        "held_out_queries": run.n_held_out,
        "preset": run.preset,
        **run.configuration.as_dict(),
        "seed": run.seed,
    }


def _dollars_a_point(run: TrainingRun) -> float | None:
    """Cost of each point of a proven gain; None for other jobs, and for free ones."""
    gain, low = run.verdict.get("improvement"), run.verdict.get("low")
    if not gain or low is None or low <= 0 or not run.spent_micros:
        return None
    return dollars(run.spent_micros) / (100 * float(gain))


def _context_differences(a: PolicyCheckpoint, b: PolicyCheckpoint) -> list[dict[str, Any]] | None:
    """Lessons that differ between two contexts, each with its text in either; None if a checkpoint has no context (an
    action policy) or is unreadable."""
    mine, theirs = _shipped(a), _shipped(b)
    if mine is None or theirs is None:
        return None
    return [
        {"handle": handle, "a": mine.get(handle), "b": theirs.get(handle)}
        for handle in dict.fromkeys([*mine, *theirs])
        if mine.get(handle) != theirs.get(handle)
    ]


def _shipped(checkpoint: PolicyCheckpoint) -> dict[str, str] | None:
    """The checkpoint's shipped texts by handle."""
    if checkpoint.run is None or not checkpoint.run.learns_context:
        return None
    # Imported here: pages of action policies don't load a trainer for this.
    from training.learners import policy_of

    try:
        policy = policy_of(checkpoint_load(checkpoint))
    except (Damaged, ValueError):
        return None
    return {lesson.handle: lesson.text for lesson in cast("ContextPolicy", policy).shipped_lessons}


def _metrics(checkpoint: PolicyCheckpoint) -> dict[str, Any]:
    own = {
        "iteration": checkpoint.iteration,
        "size": checkpoint.size,
        "validation_score": checkpoint.validation_score,
        "validation_low": checkpoint.validation_low,
    }
    # The surrogate loss compares nothing: it is about zero by construction.
    return own | {name: value for name, value in checkpoint.metrics.items() if name != "loss"}


def _metric(name: str, a: PolicyCheckpoint, b: PolicyCheckpoint) -> dict[str, Any]:
    left, right = _metrics(a).get(name), _metrics(b).get(name)
    both = isinstance(left, int | float) and isinstance(right, int | float)
    return {"name": name, "a": left, "b": right, "difference": right - left if both else None}  # type: ignore[operator]


def _config(checkpoint: PolicyCheckpoint) -> dict[str, Any]:
    return checkpoint.run.configuration.as_dict() if checkpoint.run is not None else {}


def _names(all_values: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for values in all_values for name in values))
