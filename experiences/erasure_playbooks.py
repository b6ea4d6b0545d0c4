"""Where personal data may stand in playbooks, in what was proposed for them, and in executions.

All of it is stored without addresses and numbers; a name may be left. History is never edited, so an erasure takes
rows: a version that holds the word goes whole, and the newest one is followed by a version without the item.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from agentcore_site.tenancy.erasure import Finding, holding, places
from experiences.models import ContextDelta, ExecutionTrace, Playbook, PlaybookChange, PlaybookVersion
from experiences.playbooks.deltas import Change
from experiences.selectors_playbooks import sections_of
from experiences.services.versions import version_write

BY = "erasure"


@places.register("executions")
def executions(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = ExecutionTrace.objects.filter(organization_id=organization_id)
    return _rows(mine, words, texts=("task_id",), values=("inputs", "outputs"))


@places.register("deltas")
def deltas(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    mine = ContextDelta.objects.filter(organization_id=organization_id)
    return _rows(mine, words, texts=("content", "proposed", "rationale", "reason", "target"))


@places.register("playbooks")
def playbooks(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """Items of today that hold a word are taken out by a new version; then versions and lines that hold it go."""
    mine = Playbook.objects.filter(organization_id=organization_id)
    told = list(holding(mine, words, texts=("context", "last_error")))
    versions = PlaybookVersion.objects.filter(playbook__organization_id=organization_id)
    changes = PlaybookChange.objects.filter(playbook__organization_id=organization_id)

    def held() -> tuple[Any, Any]:
        return (
            holding(versions, words, texts=("note",), values=("sections",)),
            holding(changes, words, texts=(), values=("before", "after")),
        )

    def erase() -> None:
        for playbook in told:
            _without(playbook, words)
        for rows in held():
            rows.model.objects.filter(pk__in=list(rows.values_list("pk", flat=True))).delete()

    found = len(told) + sum(rows.count() for rows in held())
    return Finding(found, erase, "Playbooks lost items, and versions that held them.")


def _without(playbook: Playbook, words: Sequence[str]) -> None:
    """The next version, without the items that hold a word."""
    now = sections_of(playbook)
    kept = [one for one in now if not any(word.casefold() in one.content.casefold() for word in words)]
    gone = [one for one in now if one not in kept]
    # The line says that an item went, and not what it said.
    changes = [Change(one.id, "erased", None, None) for one in gone]
    if gone:
        version_write(playbook, kept, changes, action="erased", by=BY)
    Playbook.objects.filter(id=playbook.id).update(last_error="")


def _rows(mine: Any, words: Sequence[str], *, texts: Sequence[str], values: Sequence[str] = ()) -> Finding:
    found = list(holding(mine, words, texts=texts, values=values).values_list("pk", flat=True))
    return Finding(len(found), lambda: mine.model.objects.filter(pk__in=found).delete())
