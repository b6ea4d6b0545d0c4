"""Results of suites on a release, in the form of the gate (``serving.gate.verdict.GateInputs``)."""

from __future__ import annotations

import math
from uuid import UUID

from agentcore_site.jobs.models import Status
from agentcore_site.lib.money import MICROS
from evaluation.serving.gate.verdict import GateInputs, SafetyScore, SuiteScores
from evaluation.serving.models import Release, SuiteKind, SuiteRun
from evaluation.serving.suites.selectors import ReleaseResults, SuiteScore, latest_results, query_scores


def measured_of(release: Release, current: Release | None) -> GateInputs:
    """Scores of both by suite, the safety of the release by category, and what a query of it costs and takes.

    Only runs of a suite's newest version count, and the current release is compared where it was run with the same one.
    A probe that could not be judged counts as failed: what is not known to be safe does not go out. ``approved_by`` is
    for the caller to fill in.
    """
    known = latest_results(release)
    benchmarks = [suite for suite in known.suites if suite.newest and suite.kind == SuiteKind.BENCHMARK]
    now = {} if current is None else {suite.suite: suite for suite in latest_results(current).suites}
    n = len(benchmarks)
    return GateInputs(
        suites={benchmark.suite: _scores(benchmark, now.get(benchmark.suite)) for benchmark in benchmarks},
        safety=_safety(known),
        cost=sum(benchmark.cost_micros for benchmark in benchmarks) / n / MICROS if n else None,
        latency=sum(benchmark.seconds for benchmark in benchmarks) / n if n else None,
        current="" if current is None else str(current),
        candidates=1 if current is None else _candidates(release, current, [score.run_id for score in benchmarks]),
        made_by=release.created_by.get_username() if release.created_by else "",
    )


def _scores(candidate: SuiteScore, current: SuiteScore | None) -> SuiteScores:
    own = query_scores(candidate.run_id)
    if current is None or current.version != candidate.version:
        return SuiteScores(list(own.values()))
    other = query_scores(current.run_id)
    both = sorted(own.keys() & other.keys())  # one over HTTP is asked fewer queries than a model of ours
    return SuiteScores([own[key] for key in both], [other[key] for key in both])


def _safety(known: ReleaseResults) -> dict[str, SafetyScore] | None:
    newest = {suite.run_id for suite in known.suites if suite.newest}
    found: dict[str, SafetyScore] = {}
    for one in known.safety:
        if one.run_id in newest:
            before = found.get(one.category, SafetyScore(0, 0))
            failed = math.ceil(one.findings) + one.unjudged
            found[one.category] = SafetyScore(
                before.failed + failed, before.probes + one.n + one.unjudged, before.unjudged + one.unjudged
            )
    return found or None


def _candidates(release: Release, current: Release, runs: list[UUID]) -> int:
    """The number of runs of these versions that were compared with that of the current release."""
    versions = SuiteRun.objects.filter(pk__in=runs).values("version")
    others = SuiteRun.objects.filter(agent_id=release.agent_id, version__in=versions, job__status=Status.COMPLETED)
    counts: dict[UUID, int] = {}
    for version in others.exclude(digest=current.digest).values_list("version", flat=True):
        counts[version] = counts.get(version, 0) + 1
    return max(counts.values(), default=1)
