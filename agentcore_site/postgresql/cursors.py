"""Django's cursors, whose statements set the scope (``agentcore_site.postgresql.scoped``)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from django.db.backends.postgresql import base
from psycopg import NotSupportedError
from psycopg.pq import TransactionStatus


class ScopeMixin:
    """``_before``: of the results, how many are those of ``SET LOCAL``."""

    _before = 0
    _copies = False

    def _execute_send(self: Any, query: Any, *, force_extended: bool = False, binary: bool | None = None) -> None:
        setting = b"" if self._copies or self._conn._pipeline else self._conn.setting_for(query.query)
        self._before = int(bool(setting))
        if setting:  # also where a cursor of the server's asks for the extended protocol: it has no parameters to send
            self._query = query
            self._pgconn.send_query(setting + query.query)
        else:
            super()._execute_send(query, force_extended=force_extended, binary=binary)  # type: ignore[misc]

    def _set_results(self: Any, results: list[Any]) -> None:
        super()._set_results(results[self._before :] if len(results) > self._before else results)  # type: ignore[misc]

    def _start_copy_gen(self: Any, statement: Any, params: Any = None) -> Generator[Any, Any, None]:
        """COPY shares no message with others: its transaction's scope is set before.

        Raises psycopg.NotSupportedError: there is no transaction.
        """
        yield from self._start_query(statement)
        if self._pgconn.transaction_status == TransactionStatus.IDLE:
            raise NotSupportedError("COPY needs a transaction, whose scope can be set")
        if setting := self._conn.setting_for(b"COPY"):
            yield from self._conn._exec_command(setting)
        self._copies = True
        try:
            yield from super()._start_copy_gen(statement, params)  # type: ignore[misc]
        finally:
            self._copies = False


class ScopedCursor(ScopeMixin, base.Cursor):  # type: ignore[misc,name-defined]
    pass


class ScopedServerSideCursor(ScopeMixin, base.ServerSideCursor):  # type: ignore[misc,name-defined]
    def _fetch_gen(self: Any, num: int | None) -> Generator[Any, Any, list[Any]]:
        """Policies are applied when rows are fetched: a statement in between may have set another scope."""
        in_transaction = self._pgconn.transaction_status == TransactionStatus.INTRANS
        if in_transaction and (setting := self._conn.setting_for(b"DECLARE")):
            yield from self._conn._exec_command(setting)
        fetched: list[Any] = yield from super()._fetch_gen(num)  # type: ignore[misc]
        return fetched
