"""A report's figures as its page shows them: one row per metric, and a forest plot of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.console.svg import ForestRow, Picture, forest
from training.algorithm.inference import surely_apart


@dataclass(frozen=True)
class MetricLabel:
    """Title and unit of a metric. ``better`` is +1 if higher is better."""

    key: str
    title: str
    unit: str  # "rate" | "usd" | "ms" | ""
    better: int


METRICS: Final = (
    MetricLabel("success_rate", "Success rate", "rate", 1),
    MetricLabel("reward", "Reward", "", 1),
    MetricLabel("steps", "Steps", "", -1),
    MetricLabel("tool_accuracy", "Tool accuracy", "rate", 1),
    MetricLabel("cost_usd", "Cost per rollout", "usd", -1),
    MetricLabel("latency_ms", "Latency per rollout", "ms", -1),
)


def metric_rows(test_set: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics of one test set. ``tone`` is good or bad only if both test and interval exclude zero."""
    rows = []
    for metric in METRICS:
        values = test_set["metrics"].get(metric.key)
        if values is not None:
            rows.append({"metric": metric, "tone": _tone(metric, values), **values})
    return rows


def metrics_forest(name: str, test_set: Mapping[str, Any]) -> Picture:
    """The forest plot of one test set. All metrics share an axis: differences in standard deviations, better to the
    right, so that rates, steps and milliseconds can share the plot."""
    rows = [row for metric in METRICS if (row := _forest_row(metric, test_set["metrics"].get(metric.key) or {}))]
    return forest(rows, label=f"Standardised differences of {len(rows)} metrics on {name}")


def _tone(metric: MetricLabel, values: Mapping[str, Any]) -> str:
    gain = values.get("improvement")
    p_value = values.get("p_adjusted", values.get("p_value")) or 1.0
    if not gain or not surely_apart(p_value, values.get("low"), values.get("high")):
        return "plain"
    return "good" if gain * metric.better > 0 else "bad"


def _forest_row(metric: MetricLabel, values: Mapping[str, Any]) -> ForestRow | None:
    """Mean and interval divided by the differences' standard deviation (Cohen's d of paired differences). If all
    queries differ alike there is no spread to divide by: equal arms are drawn at zero, others are left out."""
    gain, effect = values.get("improvement"), values.get("effect_size")
    if gain is None:
        return None
    if not effect:
        return ForestRow(metric.title, 0.0, None, None, sure=False) if not gain else None
    deviation = gain / effect
    edges = sorted(metric.better * values[key] / deviation for key in ("low", "high"))
    sure = edges[0] > 0 or edges[1] < 0
    return ForestRow(metric.title, metric.better * effect, edges[0], edges[1], sure)
