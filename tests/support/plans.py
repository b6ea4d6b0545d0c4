"""PostgreSQL's plan of a query."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet


def indexes_read(rows: QuerySet[Any]) -> list[str]:
    """The names of indexes that give a bitmap of rows, as GIN does."""
    [plan] = json.loads(rows.explain(format="json"))
    return [node["Index Name"] for node in _nodes(plan["Plan"]) if node["Node Type"] == "Bitmap Index Scan"]


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(one for part in plan.get("Plans", ()) for one in _nodes(part))]
