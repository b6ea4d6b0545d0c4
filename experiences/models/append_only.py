"""Deleting what is append-only: with the playbook that it belongs to, or for an erasure."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connection
from django.db.models import QuerySet


def history_delete(rows: QuerySet[Any], organization_id: uuid.UUID, *, by: str, why: str) -> int:
    """Deletes rows of a history (versions and changes of playbooks, changes of lessons, deltas) and returns how many.

    The database refuses a plain DELETE. This goes through a function of its owner's, which writes ``history.deleted``
    with the count to the audit log. The caller has checked that the actor may.
    """
    ids = [str(pk) for pk in rows.values_list("pk", flat=True)]
    if not ids:
        return 0
    with connection.cursor() as cursor:
        arguments = [rows.model._meta.db_table, ids, organization_id, by, why]
        cursor.execute("SELECT experiences_history_delete(%s, %s, %s, %s, %s)", arguments)
        return int(cursor.fetchone()[0])
