"""Writes of playbooks by people and services: make, edit, revert, roll back, switch, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.row_checks import known_fields, save_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.playbooks.curator import NO_EFFECTS, curate
from experiences.learning.playbooks.deltas import SETTLED, Change, Curated, Delta
from experiences.learning.playbooks.effects import ItemEffect
from experiences.learning.playbooks.history import changes_between, with_item
from experiences.learning.playbooks.items import PlaybookItem, section_of
from experiences.learning.playbooks.replacement import curate_replacing, weakest_of, weakness_of
from experiences.learning.rendering import playbook_context
from experiences.models import Agent, ContextDelta, ExecutionTrace, Experience, Playbook
from experiences.models.append_only import empty_version_delete, playbook_rows_delete
from experiences.playbooks.invalidation import announce_on_commit
from experiences.playbooks.item_effects import judged_effects
from experiences.playbooks.selectors import sections_of
from experiences.playbooks.services.versions import (
    DEFAULT_CONFIDENCE,
    VersionEntry,
    VersionMoved,
    clean,
    delta_rows,
    names_of,
    rules_of_people,
    version_store,
    version_write,
)

WITH_AGENT = "made with its agent"  # the first version's action, where no person asked for it
FIELDS = ("category", "content", "confidence")


@transaction.atomic
def playbook_create(
    actor: Actor,
    *,
    agent: Agent,
    philosophy: str = "",
    initial_sections: Sequence[Mapping[str, Any]] = (),
    for_service: bool = False,
) -> Playbook:
    """Makes the agent's playbook at version 1. It evolves if the agent ``evolves``, which new agents do not. An empty
    one that was made with its agent is taken over.

    ``for_service``: a service makes the playbook. An agent whose way to services was not chosen gets the site's
    (``ACE_RELEASE``).

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the philosophy is not the agent's, or a section is wrong (``fields`` says which).
        Conflict: the agent has a playbook already, or is archived.
    """
    require(actor, "playbook.edit", agent.organization_id)
    if agent.archived_at is not None:
        raise Conflict("This agent is archived. Choose another.")
    if philosophy and philosophy != agent.philosophy:
        message = f"The agent's philosophy is {agent.philosophy!r}; the playbook's has to be the same."
        raise Invalid(message, fields={"philosophy": message})
    if for_service and not agent.ace_release:
        agent.ace_release = settings.ACE_RELEASE
        Agent.objects.filter(id=agent.id, ace_release="").update(ace_release=agent.ace_release)
    playbook = Playbook.objects.filter(agent=agent, version=1, versions__action=WITH_AGENT).first()
    if playbook is None:
        return _made(actor, agent, initial_sections, action="created")
    return _taken_over(actor, playbook, initial_sections)


def playbook_of_new_agent(actor: Actor, agent: Agent) -> None:
    """An agent that evolves by itself has an empty playbook from the start, so that its first executions count. Who may
    edit the agent may have it made; one that is there stays."""
    if not Playbook.objects.filter(agent=agent).exists():
        _made(actor, agent, (), action=WITH_AGENT)


def _made(actor: Actor, agent: Agent, sections: Sequence[Mapping[str, Any]], *, action: str) -> Playbook:
    playbook = Playbook(
        organization_id=agent.organization_id,
        agent=agent,
        philosophy=agent.philosophy,
        created_by=Actor.of(actor).user,
    )
    begun = _initial(playbook, sections)
    playbook.context, playbook.section_count = playbook_context(begun.sections), len(begun.sections)
    playbook.next_section = len(begun.sections) + 1
    save_row(playbook, unique="agent_id", taken="This agent has a playbook already.")
    version_store(playbook, begun.sections, begun.changes, VersionEntry(action, Actor.of(actor).name))
    _record_created(actor, playbook)
    announce_on_commit(agent.id)
    return playbook


def _taken_over(actor: Actor, playbook: Playbook, sections: Sequence[Mapping[str, Any]]) -> Playbook:
    """The empty playbook that was made with its agent gets its beginning, as version 1 again. It is version 2 where an
    execution names the empty version: what its context held stays true."""
    begun, entry = _initial(playbook, sections), VersionEntry("created", Actor.of(actor).name)
    # Held first: who records an execution waits here, and then names the version that is there.
    playbook = Playbook.objects.select_for_update(of=("self",), no_key=True).select_related("agent").get(id=playbook.id)
    if playbook.version > 1 or ExecutionTrace.objects.filter(agent=playbook.agent_id, context_version=1).exists():
        version_write(playbook, begun.sections, begun.changes, entry)
    else:
        empty_version_delete(playbook.id)
        playbook.context, playbook.section_count = playbook_context(begun.sections), len(begun.sections)
        playbook.next_section = len(begun.sections) + 1
        playbook.save(update_fields=["context", "section_count", "next_section", "updated_at"])
        version_store(playbook, begun.sections, begun.changes, entry)
        announce_on_commit(playbook.agent_id)
    _record_created(actor, playbook)
    return playbook


def _record_created(actor: Actor, playbook: Playbook) -> None:
    after = {"agent": playbook.agent.slug, "sections": playbook.section_count}
    if playbook.agent.ace_release:
        after["ace_release"] = playbook.agent.ace_release
    record(actor, "playbook.created", playbook, after=after)


def playbook_retire(actor: Actor, agent: Agent) -> None:
    """The agent is archived: its evolution under way is cancelled, and its context is given out no more. The playbook
    and its history are kept."""
    for job in Job.objects.filter(evolution__agent=agent, status__in=ACTIVE):
        with suppress(Conflict):  # it has ended meanwhile
            lifecycle.cancel(actor, job)
    announce_on_commit(agent.id)


def _initial(playbook: Playbook, sections: Sequence[Mapping[str, Any]]) -> Curated:
    """The items that a playbook begins with; each has to be right."""
    most = evolution_settings(playbook.agent).max_sections
    if len(sections) > most:
        message = f"A playbook has at most {most} sections; got {len(sections)}."
        raise Invalid(message, fields={"initial_sections": message})
    deltas = [_given(f"initial_sections[{index}]", one) for index, one in enumerate(sections)]
    curated = curate([], deltas, rules_of_people(playbook.agent), names_of(playbook))
    for index, verdict in enumerate(curated.verdicts):
        if verdict.state not in SETTLED or verdict.reason:
            message = f"Section {index + 1} can't be taken: {verdict.reason}."
            raise Invalid(message, fields={f"initial_sections[{index}]": message})
    return curated


def _given(where: str, one: Mapping[str, Any]) -> Delta:
    values = known_fields(one, FIELDS)
    confidence = values.get("confidence", DEFAULT_CONFIDENCE)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        message = "confidence is a number from 0 to 1."
        raise Invalid(message, fields={f"{where}.confidence": message})
    content, category = values.get("content"), values.get("category")
    if not isinstance(content, str):
        message = "content is a text."
        raise Invalid(message, fields={f"{where}.content": message})
    return Delta("add", float(confidence), category, clean(content))  # type: ignore[arg-type]


@transaction.atomic
def playbook_edit(
    actor: Actor,
    playbook: Playbook,
    *,  # the fields of the REST request
    type: str,
    category: str = "",
    content: str = "",
    target: str = "",
    confidence: float = DEFAULT_CONFIDENCE,
    rationale: str = "",
    experience: Experience | None = None,
    expected: int | None = None,
) -> ContextDelta:
    """A person's own change of one item, as a delta that is applied at once. ``experience``: what it was taken from.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the text can't be an item, or there is no such target.
        Conflict: the playbook is full, or not at version ``expected`` any more.
    """
    require(actor, "playbook.edit", playbook.organization_id)
    if experience is not None and experience.organization_id != playbook.organization_id:
        raise Missing("There is no such experience.")
    if type not in {"add", "update", "remove"}:
        raise Invalid("A change is add, update or remove.", fields={"type": "add, update or remove."})
    check_expected(playbook, expected)
    delta = Delta(type, confidence, category or None, clean(content), target, rationale)  # type: ignore[arg-type]
    curated = by_person(playbook, delta)
    row = delta_rows(playbook, [delta], curated, by=Actor.of(actor).name)[0]
    row.experience = experience.id if experience else None
    row.version = playbook.version + 1
    entry = VersionEntry("edited", Actor.of(actor).name)
    version_write(playbook, curated.sections, curated.changes, entry, {0: row})
    row.save(force_insert=True)
    record(actor, "playbook.edited", playbook, after={"version": playbook.version, "section": row.section})
    return row


def by_person(playbook: Playbook, delta: Delta, *, replaces: bool = False) -> Curated:
    """The playbook with one change that a person signs for. ``replaces``: in a full playbook an added item takes the
    place of the weakest.

    Raises:
        Invalid: the text can't be an item, or there is no such target.
        Conflict: there is no room.
    """
    sections = sections_of(playbook)
    rules = rules_of_people(playbook.agent)
    full = delta.type == "add" and len(sections) >= rules.max_sections
    effects = judged_effects(playbook, sections) if full else NO_EFFECTS
    if full and not replaces:
        raise Conflict(_too_many(rules.max_sections, sections, effects))
    curated = curate_replacing(sections, delta, rules, names_of(playbook), effects)
    verdict = curated.verdicts[0]
    if verdict.state not in SETTLED:
        message = f"This can't be applied: {verdict.reason}."
        raise Invalid(message, fields={"content" if delta.type != "remove" else "target": message})
    if full and len(curated.sections) > len(sections):
        raise Conflict(f"Each of the playbook's {len(sections)} items is measured to help. Remove one first.")
    return curated


def _too_many(most: int, sections: Sequence[PlaybookItem], effects: Mapping[str, ItemEffect]) -> str:
    """Names the item that adds least."""
    message, weakest = f"The playbook has its {most} sections. Remove one first", weakest_of(sections, effects)
    if weakest is None:
        return f"{message}: each of them is measured to help."
    return f"{message}, such as {weakest.id}: {weakness_of(weakest, effects.get(weakest.id))}."


@transaction.atomic
def section_revert(
    actor: Actor, playbook: Playbook, *, section: str, version: int, expected: int | None = None
) -> Playbook:
    """Makes one item what it was in an earlier version: its text then, gone if it was not there, or back again.

    Raises:
        Missing: there is no such version or item.
        Conflict: it is as it was, the playbook is full, or not at version ``expected`` any more.
    """
    require(actor, "playbook.edit", playbook.organization_id)
    check_expected(playbook, expected)
    now, then = sections_of(playbook), sections_of(playbook, version)
    before, after = section_of(now, section), section_of(then, section)
    if before is None and after is None:
        raise Missing(f"There is no section {section!r} now or in version {version}.")
    if before == after:
        raise Conflict(f"The section {section} is what it was in version {version}.")
    items = with_item(now, section, after)
    _fits(playbook, items)
    action = "reverted" if before and after else "restored" if after else "removed"
    note = f"{section} as in version {version}"
    change = Change(section, action, before, after)
    version_write(playbook, items, [change], VersionEntry("reverted", Actor.of(actor).name, note=note))
    record(actor, "playbook.section_reverted", playbook, after={"section": section, "as_in": version})
    return playbook


@transaction.atomic
def playbook_rollback(actor: Actor, playbook: Playbook, *, version: int, expected: int | None = None) -> Playbook:
    """Makes a new version with the items of an earlier one.

    Raises:
        Missing: there is no such version.
        Conflict: the items are the same, too many, or the playbook is not at version ``expected`` any more.
    """
    require(actor, "playbook.edit", playbook.organization_id)
    check_expected(playbook, expected)
    now, then = sections_of(playbook), sections_of(playbook, version)
    changes = changes_between(now, then, "reverted")
    if not changes:
        raise Conflict(f"Nothing changed since version {version}.")
    _fits(playbook, then)
    note = f"as version {version}"
    version_write(playbook, then, changes, VersionEntry("rolled back", Actor.of(actor).name, note=note))
    record(actor, "playbook.rolled_back", playbook, after={"version": playbook.version, "as": version})
    return playbook


@transaction.atomic
def playbook_switch(actor: Actor, playbook: Playbook, *, evolves: bool) -> Playbook:
    """Lets an agent's playbook evolve by itself, or stops it: then it only changes by hand."""
    require(actor, "playbook.edit", playbook.organization_id)
    # One conditional update: of two people at once one switches, and the audit log has one line.
    if Agent.objects.filter(id=playbook.agent_id).exclude(evolves=evolves).update(evolves=evolves):
        playbook.agent.evolves = evolves
        record(actor, "playbook.switched", playbook, before={"evolves": not evolves}, after={"evolves": evolves})
    return playbook


@transaction.atomic
def playbook_delete(actor: Actor, playbook: Playbook, *, executions: bool = False) -> None:
    """Deletes a playbook with all its history; an evolution under way is cancelled. ``executions``: those of its agent
    go too. Without it they stay."""
    require(actor, "playbook.edit", playbook.organization_id)
    agent_id, before = playbook.agent_id, {"agent": playbook.agent.slug, "version": playbook.version}
    for job in Job.objects.filter(evolution__playbook=playbook, status__in=ACTIVE):
        with suppress(Conflict):  # it has ended meanwhile
            lifecycle.cancel(actor, job)
    if executions:
        before["executions"] = ExecutionTrace.objects.filter(agent=agent_id).delete()[0]
    playbook.counts.all().delete()
    playbook.history.all().delete()
    playbook_rows_delete(record(actor, "playbook.deleted", playbook, before=before).pk)
    announce_on_commit(agent_id)


def check_expected(playbook: Playbook, expected: int | None) -> None:
    """Raises:
    VersionMoved: the actor has looked at another version."""
    if expected is not None and playbook.version != expected:
        raise VersionMoved(expected)


def _fits(playbook: Playbook, sections: Sequence[PlaybookItem]) -> None:
    most = evolution_settings(playbook.agent).max_sections
    if len(sections) > most:
        raise Conflict(f"The playbook may have {most} sections. Remove one first.")
