"""Rules of retention: one list, to which each app adds the rules of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet

from agentcore_site.lib.registry import Registry

AT_ONCE: Final = 5_000


@dataclass(frozen=True)
class RetentionRule:
    """Retention of rows of some tables. ``says``: the rule, as a sentence. ``setting``: the site's setting of its days,
    if there is one. ``due`` counts the rows that would be deleted now, ``age`` deletes them and returns how many; both
    are None for rows that are kept for ever."""

    tables: tuple[str, ...]
    says: str
    setting: str = ""
    due: Callable[[], int] | None = None
    age: Callable[[], int] | None = None


rules: Registry[RetentionRule] = Registry("rule of retention", entry_point_group="agentcore.retention")


def old_rows(name: str, says: str, rows: Callable[[], QuerySet[Any]], *, setting: str = "", raw: bool = False) -> None:
    """Registers the rule that deletes ``rows()``, with dependent rows (``raw``: there are none)."""

    def age() -> int:
        return rows_delete(rows(), raw=raw)

    table = rows().model._meta.db_table
    rules.register(name)(RetentionRule((table,), says, setting, lambda: rows().count(), age))


def kept(name: str, says: str, *tables: str) -> None:
    """Registers that these tables are kept for ever."""
    rules.register(name)(RetentionRule(tables, says))


def rows_delete(rows: QuerySet[Any], *, raw: bool = False) -> int:
    """Deletes in small transactions, so that writers never wait. Returns how many."""
    deleted = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        batch = rows.model._base_manager.filter(pk__in=ids)
        batch._raw_delete("default") if raw else batch.delete()
        deleted += len(ids)
    return deleted
