"""Reads of playbooks, their history, what is proposed for them and how their evolutions went; scoped to the actor."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from django.db.models import F, QuerySet, Sum

from agentcore_site.jobs.models import ACTIVE, Job, Status
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.lib.money import micros
from agentcore_site.lib.months import month_start
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from budgets.ledger.accounts import month_of
from budgets.models import LedgerEntry
from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.lessons.library import Lesson
from experiences.learning.playbooks.history import ItemDifference, difference
from experiences.learning.playbooks.items import TITLES, PlaybookItem, in_order
from experiences.learning.rendering import context_of, item_lesson
from experiences.models import (
    Agent,
    ContextDelta,
    DeltaState,
    Evolution,
    ExecutionTrace,
    Experience,
    ExperienceStatus,
    Playbook,
    PlaybookChange,
    PlaybookSection,
    PlaybookVersion,
)
from experiences.models.agent_lookup import agent_get
from experiences.playbooks.deployed import DeployedContext, deployed_context

PURPOSE = "evolution"  # of paid calls, in the ledger
NOT_SERVED = (
    "Create a release of a version of its playbook, and deploy that. Or set ace_release of the agent to direct: then"
    " services receive each new version at once."
)
WAITING = (DeltaState.PROPOSED, DeltaState.REVIEW, DeltaState.QUARANTINED)


# -- playbooks ---------------------------------------------------------------------------------------------------------


def playbooks_visible(actor: Actor) -> QuerySet[Playbook]:
    return Playbook.objects.visible_to(actor).select_related("agent", "organization")


def playbook_get(actor: Actor, agent: Any) -> Playbook:
    """The playbook of an agent, by the agent's id or slug.

    Raises:
        Missing: there is no such agent, or it has no playbook.
    """
    found = playbooks_visible(actor).filter(agent_id=agent_get(actor, agent).id).first()
    if found is None:
        raise Missing(f"The agent {str(agent)[:60]!r} has no playbook.")
    return found


@dataclass(frozen=True, slots=True)
class Compiled:
    """The context of an agent's services: ``lessons`` of its release, from which each request lacks each item of the
    playbook with probability ``rate``. Of an agent that serves directly the items are those of the newest version.

    ``items`` are the playbook's items among the lessons, of this ``version``. ``dropped`` are the version's items that
    the release lacks. Where it lacks any, nothing is left out by chance. ``release`` is None where none is deployed.
    """

    playbook_id: uuid.UUID
    agent_id: uuid.UUID
    release: int | None
    lessons: tuple[Lesson, ...]
    version: int
    items: tuple[str, ...]
    dropped: tuple[str, ...]
    rate: float

    @property
    def context(self) -> str:
        """The whole rendered context."""
        return context_of(self.lessons)


def compiled(actor: Actor, agent: Any) -> Compiled:
    """The present context of an agent's services. Every interface reads it here.

    Raises:
        Missing: as ``playbook_get``, or the agent is archived: its playbook is kept, but serves no agent any more.
        Conflict: no release serves it, or one of another playbook, and the agent does not serve directly.
    """
    return compiled_of(playbook_get(actor, agent))


def compiled_of(row: Playbook) -> Compiled:
    """The same of a playbook that the actor has been given. Raises Missing, Conflict as ``compiled``."""
    if row.agent.archived_at is not None:
        raise Missing(f"The agent {row.agent.slug} is archived.")
    deployed = deployed_context(row.agent_id)
    if row.agent.serves_directly:
        return _newest(row, deployed)
    if deployed is None:
        why = f"No release of {row.agent.slug} is deployed, and services receive a deployed release."
        raise Conflict(f"{why} {NOT_SERVED}")
    texts = {lesson.handle: lesson.text for lesson in deployed.lessons if lesson.category in TITLES}
    version = _version_with(row, texts)
    if version is None:
        why = f"Release {deployed.release} of {row.agent.slug} has items that no version of its playbook has."
        raise Conflict(f"{why} {NOT_SERVED}")
    ids = [section["id"] for section in version.sections]
    dropped = tuple(one for one in ids if one not in texts)
    rate = 0.0 if dropped else row.agent.leave_out_rate
    items = tuple(lesson.handle for lesson in deployed.lessons if lesson.handle in texts)
    return Compiled(row.id, row.agent_id, deployed.release, deployed.lessons, version.number, items, dropped, rate)


def _newest(row: Playbook, deployed: DeployedContext | None) -> Compiled:
    """The items of the newest version, then the lessons of the deployed release, if there is one."""
    items = tuple(item_lesson(item) for item in sections_of(row))
    lessons = [] if deployed is None else [lesson for lesson in deployed.lessons if lesson.category not in TITLES]
    return Compiled(
        row.id,
        row.agent_id,
        None if deployed is None else deployed.release,
        (*items, *lessons),
        row.version,
        tuple(lesson.handle for lesson in items),
        (),
        row.agent.leave_out_rate,
    )


def _version_with(playbook: Playbook, wanted: Mapping[str, str]) -> PlaybookVersion | None:
    """The newest version of which these items are, with these texts; one that has no others before one that has."""
    found = None
    for version in versions_of(playbook).iterator(chunk_size=20):
        texts = {section["id"]: section["content"] for section in version.sections}
        if texts == wanted:
            return version
        if found is None and texts.items() >= wanted.items():
            found = version
    return found


# -- history -----------------------------------------------------------------------------------------------------------


def versions_of(playbook: Playbook) -> QuerySet[PlaybookVersion]:
    """Every version, newest first."""
    return PlaybookVersion.objects.filter(playbook=playbook)


def version_get(playbook: Playbook, number: int) -> PlaybookVersion:
    """Raises:
    Missing: there is no such version, or an erasure took it."""
    found = versions_of(playbook).filter(number=number).first()
    if found is None:
        raise Missing(f"The playbook has no version {number}.")
    return found


def sections_of(playbook: Playbook, number: int | None = None) -> list[PlaybookItem]:
    """The items of a version (of the newest one), with their counts of now, in the order in which they are read."""
    stored = version_get(playbook, playbook.version if number is None else number).sections
    counted = PlaybookSection.objects.filter(playbook=playbook)
    rows = counted.values_list("handle", "usage", "helpful", "harmful")
    counts = {handle: {"usage": used, "helpful": good, "harmful": bad} for handle, used, good, bad in rows}
    return in_order([PlaybookItem.of(one, counts.get(one["id"])) for one in stored])


def sections_of_agent(agent: Agent) -> list[PlaybookItem]:
    """The items of the agent's playbook; none where it has no playbook."""
    playbook = Playbook.objects.filter(agent=agent).first()
    return [] if playbook is None else sections_of(playbook)


def versions_differ(playbook: Playbook, before: int, after: int) -> list[ItemDifference]:
    """The items that two versions do not share.

    Raises:
        Missing: one of them does not exist.
    """
    return difference(sections_of(playbook, before), sections_of(playbook, after))


@dataclass(frozen=True, slots=True)
class Blame:
    """Provenance of an item: the change that gave it its present text, the delta behind it, its first author."""

    section: PlaybookItem
    origin: PlaybookChange | None
    latest: PlaybookChange | None
    delta: ContextDelta | None


def blame(playbook: Playbook) -> list[Blame]:
    """For each item of now: which version, delta, person and executions taught it. Three queries."""
    lines: dict[str, list[PlaybookChange]] = {}
    for line in PlaybookChange.objects.filter(playbook=playbook).order_by("version", "id"):
        lines.setdefault(line.handle, []).append(line)
    latest = {handle: _worded(of_one) for handle, of_one in lines.items()}
    wanted = [line.delta for line in latest.values() if line and line.delta]
    deltas = ContextDelta.objects.filter(playbook=playbook).in_bulk(wanted)
    return [_blame(item, lines.get(item.id, []), latest.get(item.id), deltas) for item in sections_of(playbook)]


def _worded(lines: Sequence[PlaybookChange]) -> PlaybookChange | None:
    """The last change of the text: one that only says it again taught nothing new."""
    return next((line for line in reversed(lines) if line.action != "merged"), None)


def _blame(
    section: PlaybookItem,
    lines: Sequence[PlaybookChange],
    latest: PlaybookChange | None,
    deltas: dict[uuid.UUID, ContextDelta],
) -> Blame:
    delta = deltas.get(latest.delta) if latest and latest.delta else None
    return Blame(section, lines[0] if lines else None, latest, delta)


def changes_of(playbook: Playbook, handle: str) -> QuerySet[PlaybookChange]:
    """The life of one item, the oldest change first."""
    return PlaybookChange.objects.filter(playbook=playbook, handle=handle)


# -- deltas and executions ---------------------------------------------------------------------------------------------


def deltas_visible(actor: Actor) -> QuerySet[ContextDelta]:
    return ContextDelta.objects.visible_to(actor).select_related("playbook", "agent", "job")


def review_queue(actor: Actor) -> QuerySet[ContextDelta]:
    """Changes that wait for a person, the oldest first."""
    return deltas_visible(actor).filter(state__in=WAITING).order_by("created_at", "id")


def delta_get(actor: Actor, delta_id: Any) -> ContextDelta:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    found = deltas_visible(actor).filter(id=as_uuid(delta_id, "delta")).first()
    if found is None:
        raise Missing(f"There is no delta {delta_id}.")
    return found


def waiting_count(actor: Actor) -> int:
    """Number of changes and lessons that wait for a person, over all agents. One query."""
    changes = ContextDelta.objects.visible_to(actor).filter(state__in=WAITING).order_by().values("id")
    lessons = Experience.objects.visible_to(actor).filter(status=ExperienceStatus.QUARANTINED).order_by().values("id")
    return changes.union(lessons, all=True).count()


def trace_get(actor: Actor, trace_id: Any) -> ExecutionTrace:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    found = traces_visible(actor).filter(id=as_uuid(trace_id, "execution")).first()
    if found is None:
        raise Missing(f"There is no execution {str(trace_id)[:60]}. It may have been deleted by its age.")
    return found


def traces_visible(actor: Actor, agent: Agent | None = None) -> QuerySet[ExecutionTrace]:
    """Executions, newest first.

    Raises:
        Forbidden: the actor's role does not read them.
    """
    require_somewhere(actor, "data.view")
    rows = ExecutionTrace.objects.visible_to(actor).select_related("agent")
    return rows.filter(agent=agent) if agent is not None else rows


# -- evolutions --------------------------------------------------------------------------------------------------------


def evolutions_visible(actor: Actor) -> QuerySet[Evolution]:
    return Evolution.objects.visible_to(actor).select_related("job", "agent", "playbook")


def evolution_get(actor: Actor, job_id: Any) -> Evolution:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    found = evolutions_visible(actor).filter(job_id=as_uuid(job_id, "evolution")).first()
    if found is None:
        raise Missing(f"There is no evolution {str(job_id)[:60]}.")
    return found


def executions_of(actor: Actor, evolution: Evolution) -> QuerySet[ExecutionTrace]:
    """The executions that an evolution read, as far as they are kept and the actor's to read, in the order in which its
    insights count them."""
    rows = ExecutionTrace.objects.visible_to(actor).filter(agent=evolution.agent, id__in=evolution.trace_ids)
    return rows.order_by("recorded_at", "id")


def dead_letters(actor: Actor) -> QuerySet[Evolution]:
    """Evolutions that failed and were not tried again with success, newest first."""
    return evolutions_visible(actor).filter(job__status=Status.FAILED).order_by("-job__finished_at")


class EvolutionStatus(TypedDict):
    """Figures of a playbook's evolutions. ``average_confidence`` is None before the first delta."""

    agent_id: uuid.UUID
    last_evolution_at: datetime | None
    evolution_count: int
    success_count: int
    failure_count: int
    total_deltas_generated: int
    total_deltas_applied: int
    average_confidence: float | None
    last_error: str | None


def evolution_status(playbook: Playbook) -> EvolutionStatus:
    """Figures of a playbook's evolutions, under the names of the internal API."""
    return {
        "agent_id": playbook.agent_id,
        "last_evolution_at": playbook.last_evolution_at,
        "evolution_count": playbook.evolutions,
        "success_count": playbook.successes,
        "failure_count": playbook.failures,
        "total_deltas_generated": playbook.deltas_generated,
        "total_deltas_applied": playbook.deltas_applied,
        "average_confidence": playbook.average_confidence,
        "last_error": playbook.last_error or None,
    }


def agent_holder(agent_id: uuid.UUID) -> Job | None:
    """The active job that may change the agent now: training or evolution, never both."""
    return Job.objects.filter(exclusive_key=f"agent:{agent_id}", status__in=ACTIVE).first()


@everything()
def queue_position(job: Job) -> int:
    """Its place among the evolutions that wait: 1 is next."""
    waiting = Job.objects.filter(kind="evolution", status=Status.QUEUED, created_at__lt=job.created_at)
    return waiting.exclude(id=job.id).count() + 1


def evolution_spent_micros(agent: Agent, *, job_id: uuid.UUID | None = None) -> int:
    """Cost of the agent's evolutions (or that of one job) this month, in micro-dollars."""
    month = month_start(month_of())
    rows = LedgerEntry.objects.filter(
        organization_id=agent.organization_id, agent_id=agent.id, purpose=PURPOSE, at__gte=month
    )
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    return rows.aggregate(micros=Sum(F("spent_delta_micros") + F("debt_delta_micros")))["micros"] or 0


def evolution_left_micros(agent: Agent) -> int:
    """Budget left for the agent's evolutions this month, in micro-dollars."""
    return max(0, micros(evolution_settings(agent).monthly_budget_usd) - evolution_spent_micros(agent))
