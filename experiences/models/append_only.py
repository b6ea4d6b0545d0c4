"""Deletion of append-only rows, by functions of the database's owner: a plain DELETE is refused. Each function takes
what goes and what orders it, and writes ``history.deleted`` with the count to the audit log. The caller has checked
that the actor may."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from agentcore_site.tenancy.erasure import erasure_under_way


def history_erase(rows: QuerySet[Any]) -> int:
    """Deletes rows of a history (versions and changes of playbooks, changes of lessons, deltas) by order of the erasure
    under way, and returns how many."""
    ids = [str(pk) for pk in rows.values_list("pk", flat=True)]
    if not ids:
        return 0
    return int(_call("experiences_history_erase", rows.model._meta.db_table, ids, erasure_under_way()))


def playbook_rows_delete(event_id: uuid.UUID) -> None:
    """Deletes the playbook that the line ``playbook.deleted`` of the audit log names, with all its history."""
    _call("experiences_playbook_delete", event_id)


def empty_version_delete(playbook_id: uuid.UUID) -> None:
    """Deletes the empty version that was made with an agent and that nothing was executed with."""
    _call("experiences_empty_version_delete", playbook_id)


def _call(function: str, *arguments: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}({', '.join(['%s'] * len(arguments))})", arguments)
        return cursor.fetchone()[0]
