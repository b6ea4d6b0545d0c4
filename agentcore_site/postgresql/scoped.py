"""A connection whose statements carry whose rows they may see (``agentcore_site.lib.row_scope``).

A pooler hands each transaction another session, so the scope is ``SET LOCAL``, in the same message as the statement,
which costs no round trip; outside of a transaction PostgreSQL runs both as one. In a transaction it is told once, and
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
    """Knows what the transaction that is open was told. None: that is not known."""

    _told: str | None = None

    def _get_tx_start_command(self) -> bytes:
        self._told = row_scope.NOTHING
        return super()._get_tx_start_command()

    def to_tell(self, statement: bytes) -> bytes:
        """What has to stand before a statement: ``SET LOCAL …;`` or nothing."""
        scope = row_scope.in_force()
        if self.pgconn.transaction_status == TransactionStatus.IDLE:
            return _set(scope) if scope and SEES.match(statement) else b""
        if statement.startswith(b"ROLLBACK"):
            self._told = None  # what was told after the savepoint is gone with it
        if scope == self._told or not SEES.match(statement):
            return b""
        self._told = scope
        return _set(scope)


def _set(scope: str) -> bytes:
    return f"SET LOCAL agentcore.scope = '{scope}';".encode()
