"""Comparison of jobs by the results of their trained policies on the same held-out queries.
A job's own report compares its policy with the start of that job. Two such reports do not say which of two policies is
better: queries differ more from each other than policies do. So the difference is taken query by query, as within a
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.jobs.models import Status
from evaluation.models import Against, EvaluationResult, EvaluationRun, Split
from evaluation.reports import LINE_NAMES
from evaluation.selectors import trajectory_ids
from evaluation.statistics import holm
from training.algorithm.inference import paired_difference, surely_apart
from training.models import TrainingRun

SHOWN: Final = 12  # queries with the largest differences between the jobs
TRAINED: Final = "trained"


@dataclass(frozen=True, slots=True)
class PairedRow:
    """A job against the reference, on the queries of a test set that both answered. Rates in [0, 1]; ``mean``, ``low``
    and ``high`` are the job's minus the reference's. ``p_adjusted`` is corrected for all shown rows."""

    run: TrainingRun
    test_set: str
    n: int
    reference: float
    other: float
    mean: float
    low: float
    high: float
    p_value: float
    p_adjusted: float

    @property
    def sure(self) -> bool:
        return surely_apart(self.p_adjusted, self.low, self.high)

    @property
    def tone(self) -> str:
        return ("good" if self.mean > 0 else "bad") if self.sure else "plain"

    @property
    def words(self) -> str:
        if self.sure:
            return f"{'Better' if self.mean > 0 else 'Worse'} by {abs(self.mean) * 100:.1f} points"
        return "The same on every query" if self.mean == self.low == self.high == 0 else "No difference shown"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """Success rates of the jobs on one query; None for a job that did not answer it. ``trajectories``: one per job."""

    query: str
    rates: list[float | None]
    trajectories: list[UUID | None]

    @property
    def cells(self) -> list[tuple[float | None, UUID | None]]:
        return list(zip(self.rates, self.trajectories, strict=True))

    @property
    def spread(self) -> float:
        known = [rate for rate in self.rates if rate is not None]
        return max(known) - min(known) if len(known) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class HeldOutComparison:
    """``unproven``: jobs without a report on held-out queries. ``apart``: jobs that share no held-out query with the
    reference. ``queries`` are those of the reference's first test set."""

    reference: TrainingRun
    rows: list[PairedRow]
    queries: list[QueryRow]
    n_differing: int
    unproven: list[TrainingRun]
    apart: list[TrainingRun]

    @property
    def possible(self) -> bool:
        return bool(self.rows)


def compare_on_held_out(runs: Sequence[TrainingRun]) -> HeldOutComparison:
    """All jobs against the first one with a report (else the first). The actor must be allowed to see the runs."""
    proofs = _proofs(runs)
    proven = [run for run in runs if run.pk in proofs]
    reference = proven[0] if proven else runs[0]
    unproven = [run for run in runs if run.pk not in proofs]
    if reference.pk not in proofs:
        return HeldOutComparison(reference, [], [], 0, unproven, [])
    rates = _rates(list(proofs.values()))
    rows, apart = [], []
    for run in proven:
        if run.pk == reference.pk:
            continue
        found = _paired(run, rates[proofs[run.pk].pk], rates[proofs[reference.pk].pk], proofs[reference.pk].lines)
        rows += found
        if not found:
            apart.append(run)
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]
    line = proofs[reference.pk].lines[0]
    queries, n_differing = _queries(runs, proofs, rates, line) if rows else ([], 0)
    return HeldOutComparison(reference, rows, queries, n_differing, unproven, apart)


def _proofs(runs: Sequence[TrainingRun]) -> dict[UUID, EvaluationRun]:
    """The final proof of each run, else its newest report on held-out queries against the run's start."""
    rows: QuerySet[EvaluationRun] = EvaluationRun.objects.filter(
        run__in=[run.pk for run in runs],
        split=Split.HELD_OUT,
        against=Against.BEGAN,
        job__status=Status.COMPLETED,
    )
    found = rows.exclude(report={}).order_by("run_id", "-final", "-job__finished_at").distinct("run_id")
    return {evaluation.run_id: evaluation for evaluation in found}


_Rates = dict[str, dict[str, float]]  # success by test set and query


def _rates(proofs: Sequence[EvaluationRun]) -> dict[UUID, _Rates]:
    """Success rates of each trained policy. A query that a set has twice counts once, with its mean."""
    several: dict[UUID, dict[str, dict[str, list[bool]]]] = {evaluation.pk: {} for evaluation in proofs}
    rows = EvaluationResult.objects.filter(evaluation__in=list(several), arm=TRAINED)
    for proof, line, query, successes in rows.values_list("evaluation_id", "line", "query", "successes"):
        several[proof].setdefault(line, {}).setdefault(query, []).extend(successes)
    return {
        proof: {
            line: {query: fmean(successes) for query, successes in queries.items() if successes}
            for line, queries in lines.items()
        }
        for proof, lines in several.items()
    }


def _paired(run: TrainingRun, rates: _Rates, reference: _Rates, lines: Sequence[str]) -> list[PairedRow]:
    rows = []
    for line in lines:
        mine, theirs = rates.get(line, {}), reference.get(line, {})
        common = sorted(mine.keys() & theirs.keys())
        if not common:
            continue
        ours, others = [mine[query] for query in common], [theirs[query] for query in common]
        found = paired_difference(ours, others)
        name = LINE_NAMES.get(line, line.replace("_", " "))
        values = (found.mean, found.low, found.high, found.p_value, found.p_value)
        rows.append(PairedRow(run, name, found.n, fmean(others), fmean(ours), *values))
    return rows


def _queries(
    runs: Sequence[TrainingRun], proofs: dict[UUID, EvaluationRun], rates: dict[UUID, _Rates], line: str
) -> tuple[list[QueryRow], int]:
    """The queries with the largest differences between the jobs, and the number of queries with any difference."""
    lines = [rates[proofs[run.pk].pk].get(line, {}) if run.pk in proofs else {} for run in runs]
    every = dict.fromkeys(query for one in lines for query in one)
    rows = [QueryRow(query, [one.get(query) for one in lines], [None] * len(runs)) for query in every]
    differing = sorted((row for row in rows if row.spread > 0), key=lambda row: (-row.spread, row.query))
    shown = differing[:SHOWN]
    if not shown:
        return [], 0
    behind = [_trajectories(proofs[run.pk], line, shown) if run.pk in proofs else {} for run in runs]
    return [replace(row, trajectories=[one.get(row.query) for one in behind]) for row in shown], len(differing)


def _trajectories(proof: EvaluationRun, line: str, rows: Sequence[QueryRow]) -> dict[str, UUID]:
    """One rollout for the rate of each query."""
    wanted = EvaluationResult.objects.filter(
        evaluation=proof, line=line, arm=TRAINED, query__in=[row.query for row in rows]
    )
    scenarios = dict(wanted.values_list("scenario", "query"))
    found = trajectory_ids(proof, line, arm=TRAINED, scenarios=list(scenarios))
    return {scenarios[scenario]: ids[0] for (_, scenario), ids in found.items()}
