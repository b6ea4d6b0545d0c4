"""Removed lessons of an agent, which a run does not propose again."""

from __future__ import annotations

from typing import Final

from django.db.models import F, OuterRef, Q, Subquery

from experiences.learning.lessons.removed import MOST, RemovedLessons, TakenOut
from experiences.lessons.selectors import by_person
from experiences.models import Experience, ExperienceChange, ExperienceStatus
from training.models import TrainingRun

WAITING: Final = "a person has yet to decide about a lesson of an earlier job that says the same"
REASON_SHOWN: Final = 120  # characters of what a person gave as reason


def memory_of_run(run: TrainingRun) -> RemovedLessons:
    """Removed lessons of earlier jobs of the run's agent. Lessons that a person removed always count. Lessons that were
    measured as harmful count where this run reuses earlier runs, for jobs with the same model, tools and prompt.

    The rows are read as they are now, so that a restored lesson may be proposed again.
    """
    last = ExperienceChange.objects.filter(experience=OuterRef("pk")).order_by("-pk")
    others = (
        Experience.objects.filter(agent=run.agent_id)
        .exclude(job=run.job_id)
        .annotate(
            ended_job=Subquery(last.values("job")[:1]),
            ended_by=Subquery(last.values("by")[:1]),
            reason=Subquery(last.values("why")[:1]),
        )
    )
    by_hand = Q(status=ExperienceStatus.PRUNED) & by_person("ended_")
    waiting = Q(status=ExperienceStatus.QUARANTINED)
    found = others.filter(by_hand | waiting | _measured(run)).order_by("-updated_at", "handle")[:MOST]
    return RemovedLessons(tuple(TakenOut(one.summary, _why(one)) for one in found))


def _measured(run: TrainingRun) -> Q:
    """Lessons that jobs of the same conditions measured to do harm, as surely as this run asks for."""
    if not run.configuration.context.reuse or not run.origin.get("acts_by"):
        return Q(pk=None)
    alike = TrainingRun.objects.filter(agent=run.agent_id, origin__acts_by=run.origin["acts_by"]).values("job")
    surely = F("effect_error") * -run.configuration.context.prune_z
    return Q(status=ExperienceStatus.PRUNED, ended_job__in=alike, effect__lt=surely)


def _why(row: Experience) -> str:
    if row.status == ExperienceStatus.QUARANTINED:
        return WAITING
    if row.ended_job is None:  # type: ignore[attr-defined]
        reason = " ".join(row.reason.split())[:REASON_SHOWN]  # type: ignore[attr-defined]
        return f"a person took it out: {reason}" if reason else "a person took it out"
    return (
        f"an earlier job measured it and took it out ({row.effect:+.3f} of reward, standard error"
        f" {row.effect_error:.3f})"
    )
