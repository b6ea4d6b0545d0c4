"""Reports from results: per test set and metric both arms with intervals, the paired difference, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from agentcore_site.lib.figures import counted, minus, p_words
from agentcore_site.lib.money import MICROS, dollars
from agentcore_site.lib.statistics import Interval, wilson_interval
from evaluation import statistics
from evaluation.context_value import context_value, context_words, thousand_calls
from evaluation.models import Against, EvaluationResult, EvaluationRun
from experiences.learning.lessons.library import Lesson, Library
from training.algorithm.arrays import FloatArray
from training.algorithm.inference import (
    PairedDifference,
    paired_difference,
    per_query,
    student_interval,
    surely_apart,
)
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import TrainingRun
from training.selectors.runs import NEXT_STEP
from training.services.pools import run_pools
from training.services.run_lessons import library_at_start

LINE_NAMES: Final = {
    "held_out": "held-out queries",
    "harder_numbers": "harder numbers",
    "unseen_wording": "unseen wording",
    "selection": "selection queries",
    "given": "given queries",
}
MARGIN: Final = 0.05  # a difference of success rates below which it does not matter, as at the gate of releases
METHOD: Final = (
    "Both arms answered the same queries {samples} times each with the same random numbers. The samples of a query are "
    "averaged first, and differences are tested by sign-flip permutation over queries. Their intervals are Student's t "
    "over queries; better or worse is reported only if test and interval agree. "
    "Within a test set the p-values of the six metrics are corrected by Holm's method; intervals of success rates are "
    "Wilson's, with queries as the unit."
)


@dataclass(frozen=True)
class MetricValues:
    """A metric of one test set: values per query of both arms. ``better`` is +1 if higher is better."""

    name: str
    baseline: FloatArray
    trained: FloatArray
    better: int
    rate: bool = False

    @property
    def reach(self) -> float:
        """The largest possible difference."""
        return 1.0 if self.rate else math.inf


def build(evaluation: EvaluationRun, *, uses: int, seconds: float, tries: int = 0) -> dict[str, Any]:
    """The report of a finished evaluation, ready to be stored as JSON. ``tries``: of ``tries_of``."""
    lines = {line: _line(evaluation, line, tries) for line in evaluation.lines}
    primary = evaluation.lines[0]
    context = learned_context(evaluation, lines[primary])
    return {
        **({} if context is None else {"context": context}),
        "verdict": lines[primary]["verdict"],
        "baseline": evaluation.baseline,
        "primary": primary,
        "seconds": round(seconds, 2),
        "method": METHOD.format(samples=evaluation.samples),
        "looks": uses,
        "tries": tries,
        "lines": lines,
    }


def verdict_of(evaluation: EvaluationRun) -> dict[str, Any]:
    """The part of the final evaluation that the run itself stores."""
    primary = evaluation.report["lines"][evaluation.report["primary"]]
    success = primary["metrics"]["success_rate"]
    return {
        "verdict": evaluation.report["verdict"],
        "evaluation_id": str(evaluation.job_id),
        "success_rate": success["trained"],
        "success_low": success["trained_low"],
        "success_high": success["trained_high"],
        "baseline_success_rate": success["baseline"],
        "improvement": success["improvement"],
        "low": success["low"],
        "high": success["high"],
        "p_value": success["p_value"],
        "lines": {
            name: {
                "baseline": line["metrics"]["success_rate"]["baseline"],
                "trained": line["metrics"]["success_rate"]["trained"],
            }
            for name, line in evaluation.report["lines"].items()
        },
    }


def learned_context(evaluation: EvaluationRun, line: dict[str, Any]) -> dict[str, Any] | None:
    """Cost and gain of a learned context; None for a policy without context, and for an uploaded one, whose learning
    cost is unknown here."""
    here = evaluation.checkpoint.run_id is not None
    run, success, cost = evaluation.run, line["metrics"]["success_rate"], line["metrics"]["cost_usd"]
    if not (run.learns_context and here) or success["improvement"] is None or cost["improvement"] is None:
        return None
    policy: Any = policy_of(checkpoint_load(evaluation.checkpoint))
    # The other arm's context is no part of what was added, nor of its cost.
    before = Library() if evaluation.against == Against.NOTHING else library_at_start(run)
    new_lessons = [lesson for lesson in policy.shipped_lessons if not _in(before, lesson)]
    value = context_value(
        success_without=success["baseline"],
        success_with=success["trained"],
        cost_without=cost["baseline"],
        cost_with=cost["trained"],
        learning_cost=dollars(run.spent_micros),
    )
    sure = {name: success[name] for name in ("improvement", "low", "high", "p_value")}
    found = {"lessons": len(new_lessons), "tokens": _tokens_each(run, policy, new_lessons), **sure, **asdict(value)}
    found["baseline"] = evaluation.baseline
    found["per_thousand"] = thousand_calls(value)
    return found | {"verdict": context_words(found)}


def _tokens_each(run: TrainingRun, policy: Any, lessons: list[Lesson]) -> int:
    """Tokens of these lessons per call: the mean over the held-out queries, because the context may depend on the
    query."""
    if policy.shipped_rule is None:
        return sum(lesson.tokens for lesson in lessons)
    queries = [scenario.query for scenario in run_pools(run).held_out]
    added, serves = {lesson.handle for lesson in lessons}, policy.serves
    tokens = sum(lesson.tokens for query in queries for lesson in serves.lessons_for(query) if lesson.handle in added)
    return round(tokens / max(len(queries), 1))


def _in(library: Library, lesson: Lesson) -> bool:
    """Whether the library has this lesson, with exactly this text."""
    at = library.position.get(lesson.handle)
    return at is not None and library.lessons[at].text == lesson.text


def _line(evaluation: EvaluationRun, line: str, tries: int) -> dict[str, Any]:
    arms = {
        arm: list(EvaluationResult.objects.filter(evaluation=evaluation, line=line, arm=arm).order_by("scenario"))
        for arm in ("baseline", "trained")
    }
    metrics = [_compared(metric) for metric in _metrics(arms["baseline"], arms["trained"])]
    adjusted = statistics.holm([metric["p_value"] for _, metric in metrics])
    for (_, metric), p_value in zip(metrics, adjusted, strict=True):
        metric["p_adjusted"] = statistics.p_of_try(float(p_value), tries) if tries else float(p_value)
    found = dict(metrics)
    if tries:
        found["success_rate"]["p_corrected"] = statistics.p_of_try(found["success_rate"]["p_value"], tries)
    n = len(arms["baseline"])
    return {
        "name": LINE_NAMES.get(line, line.replace("_", " ")),
        "n_queries": n,
        "samples": evaluation.samples,
        "verdict": verdict_words(found["success_rate"], LINE_NAMES.get(line, line), n, evaluation.baseline, tries),
        "metrics": found,
    }


def _metrics(baseline: Sequence[EvaluationResult], trained: Sequence[EvaluationResult]) -> list[MetricValues]:
    def both(read: Any) -> tuple[FloatArray, FloatArray]:
        return _values(baseline, read), _values(trained, read)

    return [
        MetricValues("success_rate", *both(lambda row: [float(value) for value in row.successes]), better=1, rate=True),
        MetricValues("reward", *both(lambda row: row.rewards), better=1),
        MetricValues("steps", *both(lambda row: [float(value) for value in row.steps]), better=-1),
        MetricValues("tool_accuracy", *both(_tool_accuracy), better=1),
        MetricValues("cost_usd", *both(lambda row: [row.cost_micros / MICROS / len(row.steps)]), better=-1),
        MetricValues("latency_ms", *both(lambda row: [row.duration_ms / len(row.steps)]), better=-1),
    ]


def _tool_accuracy(row: EvaluationResult) -> list[float]:
    """Share of successful tool calls, per rollout; NaN without calls (left out of the query's mean)."""
    pairs = zip(row.tool_calls, row.tool_errors, strict=True)
    return [(calls - errors) / calls if calls else math.nan for calls, errors in pairs]


def _values(rows: Sequence[EvaluationResult], read: Any) -> FloatArray:
    return per_query([read(row) for row in rows]) if rows else np.zeros(0)


def _compared(metric: MetricValues) -> tuple[str, dict[str, Any]]:
    """One metric of both arms. If no query has it in both arms, it is reported as not measured."""
    known = np.isfinite(metric.baseline) & np.isfinite(metric.trained)
    a, b = metric.baseline[known], metric.trained[known]
    if not len(a):
        empty = dict.fromkeys(("baseline", "trained", "improvement", "low", "high", "effect_size", "mde"))
        sides = dict.fromkeys(("baseline_low", "baseline_high", "trained_low", "trained_high"))
        return metric.name, empty | sides | {"p_value": 1.0, "test": "not measured", "enough_data": False, "n": 0}
    difference = paired_difference(b, a, reach=metric.reach)
    mde = statistics.minimum_detectable_effect(difference.sd, difference.n)
    apart, low, high = _edges(difference), _interval(metric, a), _interval(metric, b)
    return metric.name, {
        "baseline": float(a.mean()),
        "baseline_low": low[0],
        "baseline_high": low[1],
        "trained": float(b.mean()),
        "trained_low": high[0],
        "trained_high": high[1],
        "improvement": difference.mean,
        "low": apart[0],
        "high": apart[1],
        "p_value": difference.p_value,
        "effect_size": _effect(difference.mean, difference.sd),
        "test": "sign-flip permutation over queries",
        "better": metric.better,
        "enough_data": not _never(metric)
        and (surely_apart(difference.p_value, *apart) or mde <= max(0.15 * abs(float(a.mean())), 0.05)),
        "mde": mde if math.isfinite(mde) else None,
        "n": difference.n,
    }


def _never(metric: MetricValues) -> bool:
    """Whether neither arm ever succeeded: equal rates then prove nothing."""
    return metric.rate and not metric.baseline.any() and not metric.trained.any()


def _interval(metric: MetricValues, values: FloatArray) -> tuple[float | None, float | None]:
    if metric.rate:
        return _edges(wilson_interval(float(values.sum()), len(values)))
    return _edges(student_interval(values, reach=metric.reach))


def _edges(interval: Interval | PairedDifference) -> tuple[float | None, float | None]:
    """The edges for JSON, which has no infinity: an unknown edge is None."""
    low, high = (edge if math.isfinite(edge) else None for edge in (interval.low, interval.high))
    return low, high


def _effect(mean: float, sd: float) -> float | None:
    """Cohen's d of paired differences; None if they are all equal."""
    return mean / sd if sd > 0 else None


def verdict_words(success: dict[str, Any], name: str, n: int, baseline: str, tries: int) -> str:
    """The verdict: proven gain, proven loss, no difference of more than ``MARGIN``, or not enough data. ``tries`` as in
    ``build``."""
    if success["improvement"] is None:
        return f"Nothing was measured on {name}."
    gain, low, high = (100 * success[key] for key in ("improvement", "low", "high"))
    if not success["baseline"] and not success["trained"]:
        return f"No query was ever solved on {name}: 0 of {n} in either arm, so nothing can be shown. {NEXT_STEP}"
    rates = f"{100 * success['baseline']:.1f} % → {100 * success['trained']:.1f} %"
    interval = minus(f"95 % interval {low:.1f} to {high:.1f}")
    p_value = success["p_corrected"] if tries else success["p_value"]
    corrected = f", corrected for try {tries} on these queries" if tries else ""
    evidence = f"{interval}, {p_words(p_value)}{corrected}, {counted(n, 'query', 'queries')}"
    apart = surely_apart(p_value, success["low"], success["high"])
    if apart and gain > 0:
        return f"Better than {baseline} by {gain:.1f} points on {name}: {rates} ({evidence})."
    if apart:
        return f"Worse than {baseline} by {-gain:.1f} points on {name}: {rates} ({evidence})."
    if max(-low, high) < 100 * MARGIN:
        return f"No difference that matters on {name}, at most {100 * MARGIN:g} points: {rates} ({evidence})."
    unseen = "" if success["mde"] is None else f"; gains below {success['mde'] * 100:.0f} points can't be seen"
    return f"Not enough data on {name}: {rates} ({evidence}{unseen})."
