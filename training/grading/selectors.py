"""Reads of samples and of the error rates that come of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, QuerySet
from django.db.models.fields.json import KeyTextTransform

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.reading import job_rows
from experiences.trajectories.presenters.first_messages import evidence_of
from experiences.trajectories.presenters.shape_of_steps import answer_of
from training.grader_models import GraderJudgement, GraderSample
from training.grading.error_rates import GraderErrors, grader_errors
from training.grading.graded import GradedSet, data_digest, graded_digest, scorer_named
from training.models import TrainingRun


def samples_visible(actor: Actor) -> QuerySet[GraderSample]:
    return GraderSample.objects.visible_to(actor).select_related("run", "run__job", "run__agent", "run__dataset")


def sample_get(actor: Actor, sample_id: Any) -> GraderSample:
    """Raises:
    Missing: no such sample is visible to the actor.
    Forbidden: the actor's role reads no rollouts."""
    found = samples_visible(actor).filter(id=as_uuid(sample_id, "sample")).first()
    if found is None:
        raise Missing("There is no such sample.")
    require(actor, "data.view", found.organization_id)
    return found


def graded_rows(graded: GradedSet) -> QuerySet[TrajectoryRecord]:
    """Rollouts that were graded, whichever way: without those that failed before an answer."""
    rows = TrajectoryRecord.objects.filter(organization_id=graded.run.organization_id, job_id=graded.job_id)
    return rows.filter(error="").order_by("id")


def scorers_of(graded: GradedSet) -> list[tuple[str, int]]:
    """(scorer, graded rollouts) of a job, most first."""
    named = KeyTextTransform("scorer", "evidence")
    with job_rows(None, graded.job_id):
        rows = graded_rows(graded).order_by().annotate(named=named).values("named").annotate(n=Count("id"))
        counts: dict[str, int] = defaultdict(int)
        for name, n in rows.values_list("named", "n"):
            counts[scorer_named({"scorer": name}, graded.run)] += n
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


DataOf = tuple[UUID, str]  # organisation, digest of the data


def errors_on(data: Collection[DataOf]) -> dict[DataOf, list[GraderErrors]]:
    """Error rates of each scorer on each of these data sets, by one query. The same graded answer counts once, as it
    was judged last."""
    rows = GraderJudgement.objects.filter(
        sample__organization_id__in={one for one, _ in data},
        sample__data_digest__in={digest for _, digest in data},
        right__isnull=False,
    ).order_by("judged_at")
    found: dict[DataOf, dict[str, dict[str, tuple[bool, bool]]]] = defaultdict(lambda: defaultdict(dict))
    names = ("sample__organization_id", "sample__data_digest", "sample__scorer", "digest", "graded", "right")
    for organization_id, data_of, scorer, of, graded, right in rows.values_list(*names):
        found[organization_id, data_of][scorer][of] = (graded, bool(right))
    return {
        one: [grader_errors(name, judged.values()) for name, judged in sorted(scorers.items())]
        for one, scorers in found.items()
    }


def errors_of_runs(runs: Iterable[tuple[TrainingRun, str]]) -> list[list[GraderErrors]]:
    """Error rates of the scorers of runs on the data with the digest beside each; "": on the run's own. One query."""
    of = [(run, (run.organization_id, digest or data_digest(run))) for run, digest in runs]
    found = errors_on([data for _, data in of])
    return [[one for one in found.get(data, []) if _only(run) in ("", one.scorer)] for run, data in of]


def errors_of(run: TrainingRun, digest: str = "") -> list[GraderErrors]:
    """As ``errors_of_runs``, of one run."""
    return errors_of_runs([(run, digest)])[0]


def _only(run: TrainingRun) -> str:
    """The scorer that a run names for all rows; "" where each row names or implies one."""
    chosen = str(run.environment_options.get("scorer") or "auto") if run.dataset_id else "auto"
    return "" if chosen == "auto" else chosen


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """A rollout of a sample as a person judges it, without the grader's verdict."""

    judgement: GraderJudgement
    query: str
    expected: str
    answer: str
    whole: str


def answer_to_judge(sample: GraderSample, judgement: GraderJudgement) -> JudgedAnswer:
    """Raises:
    Conflict: the rollout is gone, or no longer what was sampled."""
    with job_rows(None, sample.job_id):
        rows = TrajectoryRecord.objects.filter(organization_id=sample.organization_id, job_id=sample.job_id)
        row = rows.filter(id=judgement.trajectory_id).first()
        if row is None or graded_digest(row, sample.scorer) != judgement.digest:
            raise Conflict("This rollout is no longer what was graded. Skip it.")
        evidence, whole = evidence_of(row), answer_of(row.steps)
    answer = str(evidence.get("answer") or whole)
    return JudgedAnswer(
        judgement, row.query, _text(evidence.get("expected")), answer, whole if whole.strip() != answer.strip() else ""
    )


def _text(expected: Any) -> str:
    return " | ".join(map(str, expected)) if isinstance(expected, list) else "" if expected is None else str(expected)
