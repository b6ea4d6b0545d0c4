"""PostgreSQL's plan of a query."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.db.models import Model, QuerySet

from tests.support.owner import as_owner


def indexes_read(rows: QuerySet[Any]) -> list[str]:
    """The names of indexes that give a bitmap of rows, as GIN does."""
    [plan] = json.loads(rows.explain(format="json"))
    return [node["Index Name"] for node in _nodes(plan["Plan"]) if node["Node Type"] == "Bitmap Index Scan"]


def blocks_read(work: Callable[[], Any], *grown: type[Model]) -> int:
    """The blocks of tables and indexes that the queries of ``work`` touch, each as often as it is touched. The tables
    that have ``grown`` get new statistics first, as from autovacuum."""
    found: list[int] = []

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
                [plan] = cursor.fetchone()[0]
            found.append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
        return execute(sql, params, many, context)

    with as_owner(), connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(model._meta.db_table for model in grown)}")
    work()  # what a process keeps is not read again
    with connection.execute_wrapper(explained):
        work()
    return sum(found)


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(one for part in plan.get("Plans", ()) for one in _nodes(part))]
