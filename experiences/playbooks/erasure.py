"""Erasure of personal data in playbooks, in proposed changes, and in executions.

All of it is stored without addresses and numbers; a name may be left. History is never edited, so an erasure takes
rows: a version that holds the word goes whole, and the newest one is followed by a version without the item.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentcore_site.encryption.search import encrypted_rows_containing
from agentcore_site.lib.word_erasure import erase_words
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, staying
from experiences.erasure import WHO_ACTED, idle_require
from experiences.learning.playbooks.deltas import Change
from experiences.models import ContextDelta, ExecutionTrace, Playbook, PlaybookChange, PlaybookVersion
from experiences.models.append_only import history_erase
from experiences.models.jobs_at_work import jobs_of
from experiences.playbooks.selectors import sections_of
from experiences.playbooks.services.versions import VersionEntry, version_write


@erasure_handlers.register("executions")
def executions(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: an evolution of such an agent is at work."""
    mine = ExecutionTrace.objects.filter(organization_id=organization_id)
    sealed = ("inputs", "outputs")
    return _rows(mine, words, lambda rows: rows.delete(), texts=("task_id",), values=sealed, sealed=sealed)


@erasure_handlers.register("deltas")
def deltas(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: an evolution of such an agent is at work."""
    mine = ContextDelta.objects.filter(organization_id=organization_id)
    texts = ("content", "proposed", "rationale", "reason", "target")
    return _rows(mine, words, history_erase, texts=texts)


@erasure_handlers.register("playbooks")
def playbooks(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Items of today that hold a word are taken out by a new version; then versions and lines that hold it go.

    Raises:
        Conflict: an evolution of such a playbook is at work.
    """
    mine = Playbook.objects.filter(organization_id=organization_id)
    holding_playbooks = list(holding(mine, words, texts=("context", "last_error")))
    versions = PlaybookVersion.objects.filter(playbook__organization_id=organization_id)
    changes = PlaybookChange.objects.filter(playbook__organization_id=organization_id)
    _evolutions_require_idle(playbook.agent_id for playbook in holding_playbooks)

    def held() -> tuple[Any, Any]:
        return (
            holding(versions, words, texts=("note",), values=("sections",)),
            holding(changes, words, texts=(), values=("before", "after")),
        )

    def erase() -> None:
        for playbook in holding_playbooks:
            _take_out(playbook, words)
        for rows in held():
            history_erase(rows)

    found = len(holding_playbooks) + sum(rows.count() for rows in held())
    return ErasureFinding(found, erase, "Playbooks lost items, and versions that held them.")


@erasure_handlers.register("history of playbooks: who acted")
def acted(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    rows = [
        staying(model.objects.filter(playbook__organization_id=organization_id), words, texts=("by",), note=WHO_ACTED)
        for model in (PlaybookVersion, PlaybookChange, ContextDelta)
    ]
    found = sum(row.rows for row in rows)
    return ErasureFinding(found, lambda: None, WHO_ACTED, stays=found)


def _take_out(playbook: Playbook, words: Sequence[str]) -> None:
    """The next version, without the items that hold a word; no other text of the playbook keeps it."""
    now = sections_of(playbook)
    kept = [item for item in now if not any(word.casefold() in item.content.casefold() for word in words)]
    gone = [one for one in now if one not in kept]
    # The line says that an item went, and not what it said.
    changes = [Change(item.id, "erased", None, None) for item in gone]
    if gone:
        version_write(playbook, kept, changes, VersionEntry("erased", "erasure"))
    playbook.refresh_from_db()
    context, last_error = erase_words(playbook.context, words), erase_words(playbook.last_error, words)
    Playbook.objects.filter(id=playbook.id).update(context=context, last_error=last_error)


def _rows(
    mine: Any,
    words: Sequence[str],
    delete: Callable[[Any], Any],
    *,
    texts: Sequence[str],
    values: Sequence[str] = (),
    sealed: Sequence[str] = (),
) -> ErasureFinding:
    found = dict(holding(mine, words, texts=texts, values=values).values_list("pk", "agent_id"))
    if sealed:
        found |= {row.pk: row.agent_id for row in encrypted_rows_containing(mine, words, *sealed, fields=("agent_id",))}
    _evolutions_require_idle(found.values())
    return ErasureFinding(len(found), lambda: delete(mine.model.objects.filter(pk__in=list(found))))


def _evolutions_require_idle(agents: Iterable[uuid.UUID]) -> None:
    """Of all jobs only these read what was executed, and write playbooks."""
    idle_require(jobs_of(agents).filter(kind="evolution"))
