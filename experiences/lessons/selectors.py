"""Reads of what agents learned: lessons with their history, and prompt packs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from django.db.models import Count, Exists, F, FloatField, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Cast

from agentcore_site.jobs.models import Job
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.stamps import Checked, checked
from experiences.models import (
    ITERATION,
    Agent,
    Experience,
    ExperienceChange,
    ExperienceStatus,
    PromptPack,
    TrajectoryRecord,
)

SAME: Final = ("agent_id", "domain", "summary")  # what makes two lessons one
Z: Final = 1.96  # two-sided 95 %
HELPS: Final = Q(effect__gt=F("effect_error") * Z)
HURTS: Final = Q(effect__lt=F("effect_error") * -Z)


@dataclass(frozen=True)
class LibrarySummary:
    """Figures of a set of lessons. ``tokens`` is their mean size in a call, for one agent."""

    total: int
    active: int
    proposed: int
    pruned: int
    quarantined: int
    measured: int
    helping: int
    hurting: int
    tokens: float


def experiences_visible(actor: Actor) -> QuerySet[Experience]:
    return Experience.objects.visible_to(actor).select_related("agent__prompt_pack", "organization")


def one_of_equals(rows: QuerySet[Experience]) -> QuerySet[Experience]:
    """Of the rows that say the same to the same agent, the newest."""
    newer = rows.filter(pk__gt=OuterRef("pk"), **{name: OuterRef(name) for name in SAME})
    return rows.filter(~Exists(newer.order_by()))


def jobs_that_taught(rows: Sequence[Experience]) -> dict[uuid.UUID, list[Job]]:
    """By lesson, the jobs that wrote this sentence down for this agent, the newest first. One query."""
    same = Experience.objects.filter(
        agent_id__in={row.agent_id for row in rows}, summary__in={row.summary for row in rows}, job__isnull=False
    )
    sentence: Callable[[Experience], Any] = attrgetter(*SAME)
    found: dict[Any, dict[Any, Job]] = {}
    for one in same.select_related("job").order_by("-created_at").only(*SAME, "job"):
        found.setdefault(sentence(one), {})[one.job_id] = one.job  # type: ignore[assignment]
    return {row.pk: list(found.get(sentence(row), {}).values()) for row in rows}


def experience_get(actor: Actor, experience_id: Any) -> Experience:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    rows = experiences_visible(actor).select_related("job")
    found = rows.filter(id=as_uuid(experience_id, "experience")).first()
    if found is None:
        raise Missing(f"There is no experience {str(experience_id)[:60]}.")
    return found


def experience_changes(experience: Experience) -> list[ExperienceChange]:
    """Its history, the last line first."""
    return list(experience.changes.select_related("job").order_by("-id"))


def by_person(prefix: str = "") -> Q:
    """Lines of history that a person wrote, by the names ``job`` and ``by`` after ``prefix``."""
    return Q(**{f"{prefix}job": None}) & ~Q(**{f"{prefix}by__startswith": f"{ITERATION} "})


def experience_parents(experience: Experience) -> list[Experience]:
    """The lessons that were merged into it."""
    return list(Experience.objects.filter(agent_id=experience.agent_id, handle__in=experience.parents))


def trajectories_of(actor: Actor, experience: Experience) -> list[TrajectoryRecord]:
    """The trajectories that taught it, as far as they are still kept and the actor's."""
    rows = TrajectoryRecord.objects.visible_to(actor).filter(id__in=experience.taught_by)
    return list(rows.defer("steps", "evidence", "components").order_by("iteration", "scenario", "rollout"))


def library_summary(rows: QuerySet[Experience]) -> LibrarySummary:
    """One query, over lessons of any status."""
    active = Q(status=ExperienceStatus.ACTIVE)
    weighted = Cast("tokens", FloatField()) * F("weight")
    found = rows.order_by().aggregate(
        total=Count("id"),
        **{status: Count("id", filter=Q(status=status)) for status in ExperienceStatus.values},
        measured=Count("id", filter=active & Q(effect__isnull=False)),
        helping=Count("id", filter=active & HELPS),
        hurting=Count("id", filter=active & HURTS),
        cost=Sum(weighted, filter=active),
        agents=Count("agent_id", filter=active, distinct=True),
    )
    tokens = (found.pop("cost") or 0.0) / max(found.pop("agents"), 1)
    return LibrarySummary(**found, tokens=tokens)


# -- contexts of agents ------------------------------------------------------------------------------------------------


def library_of(agent: Agent, statuses: Sequence[str] = (ExperienceStatus.ACTIVE,)) -> Checked:
    """The lessons that a job starts from, in the order in which they came; those whose stamp does not fit are named
    and left out."""
    rows = Experience.objects.filter(agent_id=agent.pk, status__in=statuses).order_by("created_at", "handle")
    return checked(of_agent(agent, rows))


def fetch_top(
    actor: Actor,
    *,
    agent: Agent | None = None,
    domain: str = "",
    limit: int = 20,
    min_reward: float | None = None,
) -> Checked:
    """The active lessons, of one agent or of all that the actor sees, that add most to the reward; at most ``limit``.

    ``min_reward``: the least mean reward of the rollouts that taught it. What was not measured yet comes last. Those
    whose stamp does not fit are left out, and reported in ``refused``.
    """
    rows = experiences_visible(actor).filter(status=ExperienceStatus.ACTIVE)
    if agent is not None:
        rows = rows.filter(agent=agent)
    if domain:
        rows = rows.filter(domain=domain)
    if min_reward is not None:
        rows = rows.filter(ground_truth__gte=min_reward)
    best = F("effect").desc(nulls_last=True), F("ground_truth").desc(nulls_last=True), "created_at", "handle"
    found = checked(rows.order_by(*best))
    return Checked(found.rows[: max(limit, 0)], found.refused)


def of_agent(agent: Agent, rows: Iterable[Experience]) -> Iterable[Experience]:
    """The rows with the agent at hand, so that its prompt is not read again."""
    for row in rows:
        row.agent = agent
        yield row


# -- prompt packs ------------------------------------------------------------------------------------------------------


def packs_visible(actor: Actor, *, archived: bool = False) -> QuerySet[PromptPack]:
    rows = PromptPack.objects.visible_to(actor).select_related("organization", "created_by")
    return rows if archived else rows.filter(archived_at=None)


def agents_by_domain(pack: PromptPack) -> QuerySet[Agent]:
    """The agents in use whose jobs take this pack where their data are of its domain."""
    choosers = Agent.objects.filter(organization_id=pack.organization_id, pack_by_domain=True, archived_at=None)
    return choosers if pack.domain and pack.archived_at is None else choosers.none()


def domains(actor: Actor) -> list[str]:
    """The domains for which the actor's packs are, to choose from."""
    return sorted(set(packs_visible(actor).exclude(domain="").order_by().values_list("domain", flat=True)[:200]))


def pack_get(actor: Actor, name: Any) -> PromptPack:
    """A pack by id, or one that is in use by name.

    Raises:
        Missing: there is none of that name in the actor's organisations.
    """
    try:
        found = packs_visible(actor, archived=True).filter(id=uuid.UUID(str(name))).first()
    except ValueError:
        found = packs_visible(actor).filter(name=str(name)).first()
    if found is None:
        raise Missing(f"There is no prompt pack {str(name)[:60]!r}.")
    return found
