"""The review queue: what a person does with changes that no model may apply by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, DomainError
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.playbooks.deltas import Change, Curated, Delta
from experiences.learning.playbooks.items import PlaybookItem
from experiences.lessons.services.review_events import review_notify
from experiences.models import ContextDelta, DeltaState, Playbook, PlaybookChange
from experiences.playbooks.selectors import WAITING
from experiences.playbooks.services.playbooks import by_person
from experiences.playbooks.services.versions import VersionEntry, clean, version_write
from experiences.privacy import redact

DECIDED = "This change has been decided already."
MOVED = "Approving it would take out {now} now, and not {seen}: the playbook or its effects changed. Look again."


@dataclass(frozen=True, slots=True)
class Replaced:
    """The item that makes room for an approved one in a full playbook, and why that one."""

    item: PlaybookItem
    reason: str


def replaced_by(delta: ContextDelta) -> Replaced | None:
    """The item that an approved change took out to have room, or that a waiting one would take out if it were approved
    as it is; None where there is none."""
    if delta.version is not None:
        line = PlaybookChange.objects.filter(playbook=delta.playbook_id, delta=delta.pk, action="pruned").first()
        return Replaced(PlaybookItem.of(line.before), line.reason) if line is not None and line.before else None
    if delta.state not in WAITING or delta.type != "add":
        return None
    try:
        curated = by_person(delta.playbook, _wanted(delta, delta.content), replaces=True)
    except DomainError:
        return None  # it can't be approved as it is, for a reason that its approval says
    change = _pruned(curated)
    return Replaced(change.before, change.reason) if change is not None and change.before is not None else None


@transaction.atomic
def delta_approve(
    actor: Actor,
    delta: ContextDelta,
    *,
    content: str | None = None,
    category: str | None = None,
    replaces: str | None = None,
) -> ContextDelta:
    """Applies a waiting change, as it is or with a text of one's own, which is checked like any other. In a full
    playbook an item that is added takes the place of the weakest by measured effect. ``replaces``: the item that the
    approver saw ("" for none); None leaves the choice to the measurement.

    The approver vouches for what was learned from untrusted text; a text that gives orders to its reader has to be
    edited first.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the text can't be an item, or its target is gone.
        Conflict: it was decided already, the playbook is full of items that help, another item than ``replaces`` is the
            weakest, or the playbook was changed at the same moment.
    """
    require(actor, "playbook.edit", delta.organization_id)
    playbook = Playbook.objects.get(id=delta.playbook_id)
    text = delta.content if content is None else clean(content)
    wanted = _wanted(delta, text, category)
    curated = by_person(playbook, wanted, replaces=True)
    gone = _pruned(curated)
    _check_seen(gone, replaces)
    verdict, who = curated.verdicts[0], Actor.of(actor)
    version_write(playbook, curated.sections, curated.changes, VersionEntry("reviewed", who.name), {0: delta})
    Playbook.objects.filter(id=playbook.id).update(deltas_applied=F("deltas_applied") + 1)
    _decide(
        actor,
        delta,
        state=str(verdict.state),
        content=text,
        proposed=delta.content if text != delta.content else "",
        category=wanted.category or "",
        section=verdict.section,
        version=playbook.version,
    )
    after = {"state": delta.state, "version": playbook.version, "edited": bool(delta.proposed)}
    if gone is not None:
        after |= {"replaced": gone.section, "reason": gone.reason}
    record(actor, "delta.approved", delta, after=after)
    review_notify(actor, delta.agent, "approved", "a change of its playbook", page=f"/reviews/{delta.pk}/")
    return delta


def _wanted(delta: ContextDelta, text: str, category: str | None = None) -> Delta:
    return Delta(
        type=delta.type,  # type: ignore[arg-type]
        confidence=delta.confidence,
        category=(category or delta.category) or None,  # type: ignore[arg-type]
        content=text,
        target=delta.target,
    )


def _pruned(curated: Curated) -> Change | None:
    return next((change for change in curated.changes if change.action == "pruned"), None)


def _check_seen(gone: Change | None, seen: str | None) -> None:
    """Raises:
    Conflict: the approver saw another item that makes room."""
    now = gone.section if gone is not None else ""
    if seen is not None and seen != now:
        message = MOVED.format(now=now or "no item", seen=seen or "none")
        raise Conflict(message, fields={"replaces": message})


@transaction.atomic
def delta_reject(actor: Actor, delta: ContextDelta, *, reason: str = "") -> ContextDelta:
    """Refuses a waiting change for good.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it was decided already.
    """
    require(actor, "playbook.edit", delta.organization_id)
    why = redact(reason.strip())[:300] or "a person refused it"
    _decide(actor, delta, state=DeltaState.REJECTED, reason=why)
    record(actor, "delta.rejected", delta, after={"reason": why})
    review_notify(actor, delta.agent, "rejected", "a change of its playbook", page=f"/reviews/{delta.pk}/")
    return delta


def _decide(actor: Actor, delta: ContextDelta, **values: Any) -> None:
    """One conditional update: of two reviewers one decides."""
    moved = ContextDelta.objects.filter(id=delta.id, state__in=WAITING).update(
        **values, reviewed_by=Actor.of(actor).user, reviewed_at=timezone.now()
    )
    if not moved:
        raise Conflict(DECIDED)
    delta.refresh_from_db()
