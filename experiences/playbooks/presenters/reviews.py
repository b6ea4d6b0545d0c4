"""The review queue as people read it: each change beside the item that it is about, and why it waits."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import F
from rest_framework import serializers

from agentcore_site.tenancy.actors import Actor
from experiences.learning.playbooks.items import TITLES, PlaybookItem
from experiences.lessons.presenters import Piece, difference
from experiences.models import ContextDelta, DeltaState, DeltaType, ExecutionTrace, PlaybookVersion
from experiences.playbooks.selectors import traces_visible

KINDS: Final = {
    "add": ("plus", "Add an item"),
    "update": ("edit", "Change an item"),
    "remove": ("cross", "Remove an item"),
}
REASONS: Final = {
    DeltaState.PROPOSED: ("clock", "", "Proposed"),
    DeltaState.REVIEW: ("info", "running", "Unsure"),
    DeltaState.QUARANTINED: ("alert", "paused", "Quarantined"),
    DeltaState.APPLIED: ("check", "good", "Applied"),
    DeltaState.MERGED: ("check", "good", "Merged"),
    DeltaState.REJECTED: ("cross", "", "Rejected"),
}
FILTERS: Final = (("review", "Unsure"), ("quarantined", "Quarantined"))
EVIDENCE: Final = 20


@dataclass(frozen=True)
class Proposal:
    """One change with all that is needed to decide about it. ``present``: the item as it is now, where there is one."""

    delta: ContextDelta
    present: PlaybookItem | None
    pieces: Sequence[Piece]

    @property
    def icon(self) -> str:
        return KINDS[self.delta.type][0]

    @property
    def word(self) -> str:
        return KINDS[self.delta.type][1]

    @property
    def mark(self) -> tuple[str, str, str]:
        """Icon, tone and word of its state."""
        return REASONS[DeltaState(self.delta.state)]

    @property
    def waits(self) -> bool:
        return self.delta.state in (DeltaState.PROPOSED, DeltaState.REVIEW, DeltaState.QUARANTINED)

    @property
    def category(self) -> str:
        name = self.delta.category or (self.present.category if self.present else "")
        return TITLES.get(name, "")

    @property
    def gone(self) -> bool:
        """The item that it is about is not there any more."""
        return self.delta.type != "add" and self.present is None


def proposals(rows: Sequence[ContextDelta]) -> list[Proposal]:
    """The rows beside the items of their playbooks' newest versions. One query."""
    sections = _present({row.playbook_id for row in rows})
    return [_proposal(row, sections.get(row.playbook_id, {}).get(row.target)) for row in rows]


def evidence(actor: Actor, delta: ContextDelta) -> tuple[list[ExecutionTrace], int]:
    """The executions behind a change that are still kept, and how many are not; none for who may not read them."""
    if not Actor.of(actor).may("data.view", delta.organization_id):
        return [], 0
    kept = list(traces_visible(actor).filter(id__in=delta.taught_by)[:EVIDENCE])
    return kept, max(0, min(len(delta.taught_by), EVIDENCE) - len(kept))


def _proposal(row: ContextDelta, present: PlaybookItem | None) -> Proposal:
    before = present.content if present else ""
    return Proposal(row, present, difference(before, "" if row.type == "remove" else row.content))


def _present(playbooks: set[uuid.UUID]) -> dict[uuid.UUID, dict[str, PlaybookItem]]:
    rows = PlaybookVersion.objects.filter(playbook__in=playbooks, number=F("playbook__version"))
    return {
        playbook: {one["id"]: PlaybookItem.of(one) for one in stored}
        for playbook, stored in rows.values_list("playbook_id", "sections")
    }


class DeltaOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    playbook_id = serializers.UUIDField()
    job_id = serializers.UUIDField(allow_null=True, help_text="The evolution that suggested it.")
    type = serializers.ChoiceField(choices=DeltaType.choices)
    category = serializers.CharField()
    content = serializers.CharField()
    proposed = serializers.CharField(help_text="The text as it came, where a person edited it.")
    target = serializers.CharField(help_text="The item that it is about.")
    confidence = serializers.FloatField()
    rationale = serializers.CharField()
    state = serializers.ChoiceField(choices=DeltaState.choices)
    reason = serializers.CharField(help_text="Why it waits, or was refused.")
    taught_by = serializers.ListField(child=serializers.UUIDField(), help_text="Executions.")
    section = serializers.CharField(help_text="Item that the change added or updated.")
    version = serializers.IntegerField(allow_null=True, help_text="First version with the change.")
    by = serializers.CharField()
    created_at = serializers.DateTimeField()
    reviewed_at = serializers.DateTimeField(allow_null=True)


class ReplacedOut(serializers.Serializer[Any]):
    id = serializers.CharField(source="item.id", help_text="The item's id.")
    content = serializers.CharField(source="item.content")
    reason = serializers.CharField(help_text="Why it is the weakest, with the figures that say so.")
