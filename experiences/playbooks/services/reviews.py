"""The review queue: what a person does with changes that no model may apply by itself."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.playbooks.deltas import Delta
from experiences.lessons.services.review_events import review_notify
from experiences.models import ContextDelta, DeltaState, Playbook
from experiences.playbooks.selectors import WAITING
from experiences.playbooks.services.playbooks import by_person
from experiences.playbooks.services.versions import VersionEntry, clean, version_write
from experiences.privacy import redact

DECIDED = "This change has been decided already."


@transaction.atomic
def delta_approve(
    actor: Actor, delta: ContextDelta, *, content: str | None = None, category: str | None = None
) -> ContextDelta:
    """Applies a waiting change, as it is or with a text of one's own, which is checked like any other.

    The approver vouches for what was learned from untrusted text; a text that gives orders to its reader has to be
    edited first.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the text can't be an item, or its target is gone.
        Conflict: it was decided already, the playbook is full, or was changed at the same moment.
    """
    require(actor, "playbook.edit", delta.organization_id)
    playbook = Playbook.objects.get(id=delta.playbook_id)
    text = delta.content if content is None else clean(content)
    wanted = Delta(
        type=delta.type,  # type: ignore[arg-type]
        confidence=delta.confidence,
        category=(category or delta.category) or None,  # type: ignore[arg-type]
        content=text,
        target=delta.target,
    )
    curated = by_person(playbook, wanted)
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
    record(actor, "delta.approved", delta, after=after)
    review_notify(actor, delta.agent, "approved", "a change of its playbook", page=f"/reviews/{delta.pk}/")
    return delta


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
