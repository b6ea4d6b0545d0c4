"""Django's backend, which notes what a request may have changed (``agentcore_site.changes``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base

from agentcore_site.changes import may_have_changed


class DatabaseWrapper(base.DatabaseWrapper):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(_note)

    def _commit(self) -> Any:
        may_have_changed()  # also where it fails: the answer may be lost after the commit was done
        return super()._commit()  # type: ignore[misc]  # not in the stubs


def _note(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """A statement outside of a transaction commits itself."""
    if not context["connection"].in_atomic_block and not str(sql).lstrip("( \n").upper().startswith("SELECT"):
        may_have_changed()
    return execute(sql, params, many, context)
