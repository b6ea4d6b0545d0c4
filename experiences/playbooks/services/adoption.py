"""Brings a proven context to production: active lessons become items of the agent's playbook.

Training touches copies only; this is the one step from there to an agent's context.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.playbooks.guards import category_fault
from experiences.models import Agent, ContextDelta, Experience, Playbook
from experiences.playbooks.adoption_preview import Adoption, adoptable, adoption
from experiences.playbooks.selectors import agent_holder
from experiences.playbooks.services.playbooks import playbook_create
from experiences.playbooks.services.versions import VersionEntry, VersionMoved, delta_rows, version_write


@transaction.atomic
def playbook_adopt(
    actor: Actor,
    agent: Agent,
    experiences: Sequence[Experience] | None = None,
    *,
    category: str = "learnings",
    expected: int | None = None,
) -> Playbook:
    """Puts lessons (every active one if none are given) into the agent's playbook, all of them or none, in one new
    version; makes the playbook if there is none. ``expected`` is the version that was seen; 0 where there was none.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: no lesson was chosen, the category is unknown, or a lesson can't be adopted.
        Conflict: a job changes the agent, it has no active lesson, there is no room, or the playbook is not at version
            ``expected`` any more.
    """
    require(actor, "playbook.edit", agent.organization_id)
    _check(agent, category)
    chosen = _chosen(agent, experiences)
    found = Playbook.objects.filter(agent=agent).first()
    if expected is not None and expected != (found.version if found else 0):
        raise VersionMoved(expected)
    playbook = found or playbook_create(actor, agent=agent)
    plan = adoption(agent, playbook, chosen, category)  # type: ignore[arg-type]
    _fits(plan, chosen)
    _write(actor, playbook, plan)
    after = {"version": playbook.version, "lessons": [experience.handle for experience in plan.taken]}
    record(actor, "playbook.adopted", playbook, after=after)
    return playbook


def _check(agent: Agent, category: str) -> None:
    if fault := category_fault(category):
        raise Invalid(f"This can't be applied: {fault}.", fields={"category": fault})
    if agent.archived_at is not None:
        raise Conflict("This agent is archived.")
    if (holder := agent_holder(agent.id)) is not None:
        raise Conflict(
            f"The job “{holder}” ({holder.kind}, {holder.status}) changes this agent now, and one at a time may."
            " Wait until it ends, or cancel it."
        )


def _chosen(agent: Agent, experiences: Sequence[Experience] | None) -> Sequence[Experience]:
    """The given lessons, or every active one."""
    if experiences is None:
        if not (chosen := adoptable(agent)):
            raise Conflict("The agent has no active lesson. A job has to measure that one helps first.")
        return chosen
    if not experiences:
        raise Invalid("Choose at least one lesson.", fields={"experiences": "At least one."})
    return experiences


def _fits(plan: Adoption, experiences: Sequence[Experience]) -> None:
    if plan.refused:
        first = next(experience for experience in experiences if experience.pk in plan.refused)
        message = f"The lesson “{first.summary[:80]}” can't be adopted: {plan.refused[first.pk]}."
        raise Invalid(message, fields={"experiences": message})
    if plan.excess:
        items = "item" if plan.excess == 1 else "items"
        raise Conflict(f"The playbook would have {plan.excess} {items} too many. Choose fewer, or remove some first.")


def _write(actor: Actor, playbook: Playbook, plan: Adoption) -> None:
    who = Actor.of(actor).name
    rows = delta_rows(playbook, plan.deltas, plan.curated, by=who)
    for row, lesson in zip(rows, plan.taken, strict=True):
        row.experience, row.version = lesson.pk, playbook.version + 1
    lessons = "lesson" if len(rows) == 1 else "lessons"
    version_write(
        playbook,
        plan.curated.sections,
        plan.curated.changes,
        VersionEntry("adopted", who, note=f"{len(rows)} {lessons} that the agent learned"),
        dict(enumerate(rows)),
    )
    ContextDelta.objects.bulk_create(rows)
