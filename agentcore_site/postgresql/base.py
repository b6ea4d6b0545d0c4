"""Django's backend. It notes what a request may have changed (``agentcore_site.changes``). It waits longer for a
connection of the pool where the server is there and only busy, and gives up a server that fell silent, also without a
pool. It also sets the scope of rows that a statement may see."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import PoolTimeout

from agentcore_site.changes import may_have_changed
from agentcore_site.lib import row_scope
from agentcore_site.postgresql.cursors import ScopedCursor, ScopedServerSideCursor
from agentcore_site.postgresql.server import server_at
from agentcore_site.postgresql.watched import SILENT, PatientConnection

BUSY_SECONDS: Final = 10.0  # for a connection, while all of the pool's are in use


class Driver(ModuleType):
    """psycopg, but for the connections that Django makes of it where there is no pool."""

    connect = PatientConnection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    Database = Driver("psycopg")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers += [_scoped, _note]

    def get_connection_params(self) -> dict[str, Any]:
        return {**super().get_connection_params(), "cursor_factory": ScopedCursor}

    def create_cursor(self, name: str | None = None) -> Any:
        """Of the server's where it has a name, as Django reads long lists."""
        made = super().create_cursor(name)
        if name:
            made.__class__ = ScopedServerSideCursor
        return made

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A pool that is used up and a server that is away look alike to who waits: the server is asked."""
        deadline = time.monotonic() + BUSY_SECONDS
        server = server_at(self.settings_dict["HOST"], int(self.settings_dict["PORT"]))
        if "pool" in self.settings_dict["OPTIONS"] and server.known_silent:
            raise psycopg.OperationalError(SILENT)
        while True:
            try:
                return super().get_new_connection(conn_params)
            except PoolTimeout:
                if not server.answers() or time.monotonic() > deadline:
                    raise

    def _commit(self) -> Any:
        may_have_changed()  # also where it fails: the answer may be lost after the commit was done
        return super()._commit()  # type: ignore[misc]  # not in the stubs


def _scoped(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """The scope is found out here: further down the connection is locked, and to find out may take a query."""
    row_scope.resolve()
    return execute(sql, params, many, context)


def _note(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """A statement outside of a transaction commits itself."""
    if not context["connection"].in_atomic_block and not str(sql).lstrip("( \n").upper().startswith("SELECT"):
        may_have_changed()
    return execute(sql, params, many, context)
