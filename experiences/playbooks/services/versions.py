"""The one writer of a playbook's versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.db.models import F
from django.utils import timezone

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict
from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.lessons.guards import Runs
from experiences.learning.playbooks.curator import CuratorRules
from experiences.learning.playbooks.deltas import Change, Curated, Delta, DeltaOutcome, State
from experiences.learning.playbooks.items import MAX_CONTENT, PlaybookItem, number
from experiences.learning.rendering import playbook_context
from experiences.lessons.provenance import acting_functions, held_reason
from experiences.models import Agent, ContextDelta, Playbook, PlaybookChange, PlaybookSection, PlaybookVersion
from experiences.playbooks.invalidation import announce_on_commit
from experiences.privacy import redact

MAX_REASON = 300
DEFAULT_CONFIDENCE = 0.8  # of what a person writes


class VersionMoved(Conflict):
    """The playbook was changed since it was read."""

    def __init__(self, expected: int) -> None:
        message = f"The playbook is no longer at version {expected}: it was changed. Look at it and try again."
        super().__init__(message, fields={"version": message})


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """The line of a version in the history: what made it, and who."""

    action: str
    by: str
    job: Job | None = None
    note: str = ""


def version_write(
    playbook: Playbook,
    sections: Sequence[PlaybookItem],
    changes: Sequence[Change],
    entry: VersionEntry,
    deltas: Mapping[int, ContextDelta] | None = None,
) -> None:
    """Makes the next version of ``playbook``, which is as its writer has read it. In the writer's transaction.

    ``deltas`` are the rows behind the changes, by their place in the batch.

    Raises:
        VersionMoved: another change was first; nothing was written.
    """
    version_claim(playbook, sections)
    version_store(playbook, sections, changes, entry, deltas)


def version_claim(playbook: Playbook, sections: Sequence[PlaybookItem], **counted: Any) -> None:
    """Moves the pointer, which locks the row until the transaction ends. ``counted``: what else is in the row.

    Raises:
        VersionMoved: another change was first.
    """
    expected = playbook.version
    moved = Playbook.objects.filter(id=playbook.id, version=expected).update(
        version=F("version") + 1,
        next_section=max([playbook.next_section, *(number(section.id) + 1 for section in sections)]),
        context=playbook_context(sections),
        section_count=len(sections),
        updated_at=timezone.now(),
        **counted,
    )
    if not moved:
        raise VersionMoved(expected)
    playbook.refresh_from_db()
    announce_on_commit(playbook.agent_id)


def version_store(
    playbook: Playbook,
    sections: Sequence[PlaybookItem],
    changes: Sequence[Change],
    entry: VersionEntry,
    deltas: Mapping[int, ContextDelta] | None = None,
) -> None:
    """The snapshot of the version that the playbook points to, and a line for each item that changed."""
    PlaybookVersion.objects.create(
        playbook=playbook,
        number=playbook.version,
        sections=[section.stored() for section in sections],
        action=entry.action,
        note=entry.note[:300],
        by=entry.by[:150],
        job=entry.job,
    )
    # A name that came back finds its old counts.
    names = [PlaybookSection(playbook=playbook, handle=section.id) for section in sections]
    PlaybookSection.objects.bulk_create(names, ignore_conflicts=True)
    rows = deltas or {}
    PlaybookChange.objects.bulk_create(
        [_line(playbook, change, rows.get(-1 if change.delta is None else change.delta), entry) for change in changes]
    )


def _line(playbook: Playbook, change: Change, delta: ContextDelta | None, entry: VersionEntry) -> PlaybookChange:
    return PlaybookChange(
        playbook=playbook,
        version=playbook.version,
        handle=change.section,
        action=change.action,
        before=change.before.stored() if change.before else None,
        after=change.after.stored() if change.after else None,
        reason=change.reason[:MAX_REASON],
        delta=delta.id if delta else None,
        experience=delta.experience if delta else None,
        by=entry.by[:150],
        job=entry.job,
    )


def clean(content: str) -> str:
    """A text as it came from outside: without personal data, and with lines that end as ours do."""
    return redact(content.replace("\r\n", "\n").strip())


def names_of(playbook: Playbook) -> Callable[[], str]:
    """Gives names that were never given before; they are taken when the version is written."""
    numbers = count(playbook.next_section)
    return lambda: f"s{next(numbers)}"


def rules_of_evolution(agent: Agent, untrusted: Runs = frozenset()) -> CuratorRules:
    """Rules for changes that a model makes by itself."""
    own = evolution_settings(agent)
    return CuratorRules(
        min_confidence=own.min_confidence,
        review_floor=own.review_confidence,
        max_sections=own.max_sections,
        untrusted=untrusted,
        functions=acting_functions(agent),
        held=held_reason(agent),
    )


def rules_of_people(agent: Agent) -> CuratorRules:
    """Rules for a person's changes: a person who signs for a text needs no confidence, but may not smuggle an order
    in."""
    most = evolution_settings(agent).max_sections
    return CuratorRules(min_confidence=0.0, review_floor=0.0, max_sections=most, guarded=False)


def delta_rows(
    playbook: Playbook, deltas: Sequence[Delta], curated: Curated, *, by: str, job: Job | None = None
) -> list[ContextDelta]:
    """A row for each delta with its verdict, not yet stored."""
    return [_row(playbook, delta, verdict, by, job) for delta, verdict in zip(deltas, curated.verdicts, strict=True)]


def _row(playbook: Playbook, delta: Delta, verdict: DeltaOutcome, by: str, job: Job | None) -> ContextDelta:
    settled = verdict.state in (State.APPLIED, State.MERGED)
    return ContextDelta(
        organization_id=playbook.organization_id,
        playbook=playbook,
        agent_id=playbook.agent_id,
        job=job,
        type=delta.type,
        category=delta.category or "",
        content=delta.content[:MAX_CONTENT],
        target=delta.target[:40],
        confidence=delta.confidence,
        rationale=redact(delta.rationale),
        state=str(verdict.state),
        reason=verdict.reason[:MAX_REASON],
        taught_by=list(delta.taught_by),
        section=verdict.section,
        version=playbook.version if settled else None,
        by=by[:150],
    )
