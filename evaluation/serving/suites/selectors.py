"""Reads of suites: what there is, how a suite went over time, and what is known of a release."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Func, IntegerField, Max, OuterRef, Q, QuerySet, Subquery, Sum

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.models import Release, Suite, SuiteKind, SuiteResult, SuiteRun, SuiteVersion, line_of
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.selectors import address_now, bundle_of
from experiences.models import Agent, TrajectoryRecord
from experiences.trajectories.archive.reading import job_rows

LARGE = ("release__bundle", "bundle", "done")


def suites_visible(actor: Actor, *, archived: bool = False) -> QuerySet[Suite]:
    """With ``latest`` (the number of the newest version), and how many ``runs`` were asked for and when the last."""
    rows = Suite.objects.visible_to(actor).select_related("organization", "created_by")
    rows = rows if archived else rows.filter(archived_at=None)
    return rows.annotate(
        latest=Max("versions__number"),
        runs=Count("versions__runs", distinct=True),
        last_run=Max("versions__runs__job__created_at"),
    )


def suite_get(actor: Actor, name: Any) -> Suite:
    """By id or name.

    Raises:
        Missing: there is none, or it belongs to another organisation."""
    try:
        which = Q(pk=UUID(str(name)))
    except ValueError:
        which = Q(name=str(name))
    found = suites_visible(actor, archived=True).filter(which).first()
    if found is None:
        raise Missing(f"There is no suite {str(name)[:60]}.")
    return found


def version_get(suite: Suite, number: int | None = None) -> SuiteVersion:
    """The version of that number, or the newest.

    Raises:
        Missing: the suite has no such version."""
    rows = suite.versions.select_related("suite", "created_by")
    found = rows.filter(number=number).first() if number is not None else rows.order_by("-number").first()
    if found is None:
        raise Missing(f"{suite.name} has no version {number}.")
    return found


def suite_runs_visible(actor: Actor) -> QuerySet[SuiteRun]:
    rows = SuiteRun.objects.visible_to(actor)
    return rows.select_related("job", "job__created_by", "agent", "release__agent", "version__suite").defer(*LARGE)


def last_scored(actor: Actor, suites: Sequence[Suite], agent: Agent | None = None) -> dict[UUID, SuiteRun]:
    """By suite, the last run that has a score; of one agent, if it is given."""
    runs = suite_runs_visible(actor).filter(version__suite__in=suites, score__isnull=False)
    runs = runs if agent is None else runs.filter(agent=agent)
    last = runs.order_by("version__suite_id", "-job__created_at").distinct("version__suite_id")
    return {run.version.suite_id: run for run in last}


def suite_run_get(actor: Actor, job_id: Any) -> SuiteRun:
    """Raises:
    Missing: there is no such run, or it belongs to another organisation."""
    found = suite_runs_visible(actor).filter(job_id=as_uuid(job_id, "run of a suite")).first()
    if found is None:
        raise Missing(f"There is no run {str(job_id)[:60]} of a suite.")
    return found


def bundle_played(run: SuiteRun) -> Bundle:
    """The bundle of the run: its release's, or that of the agent's state at the request."""
    return Bundle.from_json(run.bundle if run.release is None else run.release.bundle)


def results_visible(actor: Actor, run: SuiteRun) -> QuerySet[SuiteResult]:
    """Each query of a run with what was answered.

    Raises:
        Forbidden: the actor's role does not read raw answers; the run's verdict and categories are for all.
    """
    require(actor, "data.view", run.organization_id)
    return run.results.all()


def trajectories_of(results: list[SuiteResult], run: SuiteRun) -> dict[int, list[UUID]]:
    """By result, the trajectories of its samples in their order."""
    by_place = {(line_of(result.part, result.category), result.scenario): result.pk for result in results}
    rows = TrajectoryRecord.objects.filter(
        job_id=run.job_id,
        month=run.job.created_at.date().replace(day=1),
        line__in={line for line, _ in by_place},
        scenario__in={scenario for _, scenario in by_place},
    )
    found: dict[int, list[UUID]] = {}
    with job_rows(None, run.job_id):
        played = list(rows.order_by("rollout").values_list("line", "scenario", "id"))
    for line, scenario, key in played:
        if (line, scenario) in by_place:
            found.setdefault(by_place[line, scenario], []).append(key)
    return found


# -- what is known of a release ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SuiteScore:
    """The last run of a suite that played exactly what a release serves. Rates lie in [0, 1] with a 95 % interval over
    ``n`` queries that were judged; ``unjudged`` could not be. ``passed`` is None without a threshold, or where too
    little was judged. ``newest``: whether the suite has no later version. ``cost_micros`` and ``seconds`` are what a
    rollout took in the mean, in micro-dollars and seconds.
    """

    suite: str
    kind: str
    version: int
    newest: bool
    run_id: UUID
    score: float | None
    low: float | None
    high: float | None
    n: int
    unjudged: int
    threshold: float | None
    passed: bool | None
    cost_micros: float
    seconds: float

    @property
    def judged(self) -> int:
        return self.n

    @property
    def asked(self) -> int:
        return self.n + self.unjudged


@dataclass(frozen=True)
class SafetyCategory:
    """A category of a safety suite: ``findings`` of ``n`` probes were not safe, with the interval of the safe share."""

    suite: str
    category: str
    n: int
    unjudged: int
    findings: float
    rate: float | None
    low: float
    high: float
    passed: bool | None
    run_id: UUID


@dataclass(frozen=True)
class ReleaseResults:
    """Results of suites on a release: ``suites`` by name, and ``safety`` by category. Empty without runs."""

    suites: tuple[SuiteScore, ...]
    safety: tuple[SafetyCategory, ...]


def latest_results(release: Release) -> ReleaseResults:
    """Results that a gate reads before a release goes out: of each suite the last completed run with the release's
    digest. A run of the agent before the release was made from the same bundle counts too. A run whose endpoint was at
    another address does not."""
    rows = SuiteRun.objects.filter(
        agent_id=release.agent_id,
        digest=release.digest,
        job__status=Status.COMPLETED,
        version__suite__archived_at=None,
    )
    last = rows.filter(version__suite=OuterRef("version__suite")).order_by("-job__finished_at", "-pk")
    newest = SuiteVersion.objects.filter(suite=OuterRef("version__suite")).order_by("-number")
    found = (
        rows.filter(pk=Subquery(last.values("pk")[:1]))
        .annotate(
            newest=Subquery(newest.values("number")[:1]),
            took=Sum("results__duration_ms"),
            rollouts=Sum(Func(F("results__successes"), function="cardinality", output_field=IntegerField())),
        )
        .select_related("version__suite")
        .defer("bundle", "done")
        .order_by("version__suite__name")
    )
    bundle = bundle_of(release)
    address, before = address_now(bundle), bundle.model.base_url
    runs = [one for one in found if one.report.get("address", before) == address]
    return ReleaseResults(
        suites=tuple(_score(run) for run in runs),
        safety=tuple(
            SafetyCategory(
                suite=run.version.suite.name,
                category=category["category"],
                n=category["n"],
                unjudged=category["untold"],
                findings=0.0 if category["rate"] is None else round(category["n"] * (1 - category["rate"]), 6),
                rate=category["rate"],
                low=category["low"],
                high=category["high"],
                passed=category["passed"],
                run_id=run.pk,
            )
            for run in runs
            if run.version.suite.kind == SuiteKind.SAFETY
            for category in run.report["categories"]
        ),
    )


def query_scores(run_id: UUID) -> dict[tuple[int, int], float]:
    """Of each query of a run, by part and place: the share of its samples that succeeded, NaN where none was judged.
    Two runs of one version have the same queries, so that they can be compared query by query."""
    rows = SuiteResult.objects.filter(run_id=run_id).order_by("part", "scenario")
    return {(row.part, row.scenario): sum(row.judged) / len(row.judged) if row.judged else math.nan for row in rows}


def _score(run: Any) -> SuiteScore:
    suite = run.version.suite
    rollouts = run.rollouts or 1
    return SuiteScore(
        suite=suite.name,
        kind=suite.kind,
        version=run.version.number,
        newest=run.version.number == run.newest,
        run_id=run.pk,
        score=run.score,
        low=run.low,
        high=run.high,
        n=run.report["n"],
        unjudged=run.report["untold"],
        threshold=run.version.parsed.threshold,
        passed=run.passed,
        cost_micros=run.cost_micros / rollouts,
        seconds=(run.took or 0.0) / 1000 / rollouts,
    )
