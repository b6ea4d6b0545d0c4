"""A connection whose statements carry whose rows they may see (``agentcore_site.lib.row_scope``).

A pooler hands each transaction another session, so the scope is ``SET LOCAL``, in the same message as the statement,
which costs no round trip; outside of a transaction PostgreSQL runs both as one. In a transaction it is set once, and
again where it changes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from psycopg import Connection
from psycopg.pq import TransactionStatus

from agentcore_site.lib import row_scope

# Statements that see rows. Some of the others may not share a message (VACUUM, CREATE DATABASE).
SEES: Final = re.compile(rb"[\s(]*(?:SELECT|INSERT|UPDATE|DELETE|WITH|DECLARE|VALUES|MERGE|COPY|EXPLAIN)\b", re.I)


class ScopedConnection(Connection[Any]):
    """Tracks the open transaction's scope in ``_scope``; None: unknown."""

    _scope: str | None = None

    def _get_tx_start_command(self) -> bytes:
        self._scope = row_scope.NOTHING
        return super()._get_tx_start_command()

    def setting_for(self, statement: bytes) -> bytes:
        """The prefix of a statement: ``SET LOCAL …;`` or nothing."""
        scope = row_scope.in_force()
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            return _set(scope) if scope and SEES.match(statement) else b""
        if statement.startswith(b"ROLLBACK"):
            self._scope = None  # a scope that was set after the savepoint is gone with it
        if scope == self._scope or not SEES.match(statement):
            return b""
        self._scope = scope
        return _set(scope)


def _set(scope: str) -> bytes:
    return f"SET LOCAL agentcore.scope = '{scope}';".encode()
