"""Django's cursors, whose statements tell the scope (``agentcore_site.postgresql.scoped``)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from django.db.backends.postgresql import base
from psycopg import NotSupportedError
from psycopg.pq import TransactionStatus


class TellingMixin:
    """``_before``: of the results, how many are those of ``SET LOCAL``."""

    _before = 0
    _copies = False

    def _execute_send(self: Any, query: Any, *, force_extended: bool = False, binary: bool | None = None) -> None:
        told = b"" if self._copies or self._conn._pipeline else self._conn.to_tell(query.query)
        self._before = int(bool(told))
        if told:  # also where a cursor of the server's asks for the extended protocol: it has no parameters to send
            self._query = query
            self._pgconn.send_query(told + query.query)
        else:
            super()._execute_send(query, force_extended=force_extended, binary=binary)  # type: ignore[misc]

    def _set_results(self: Any, results: list[Any]) -> None:
        super()._set_results(results[self._before :] if len(results) > self._before else results)  # type: ignore[misc]

    def _start_copy_gen(self: Any, statement: Any, params: Any = None) -> Generator[Any, Any, None]:
        """COPY shares no message with others: its transaction is told before.

        Raises psycopg.NotSupportedError: it is in none.
        """
        yield from self._start_query(statement)
        if self._pgconn.transaction_status == TransactionStatus.IDLE:
            raise NotSupportedError("COPY needs a transaction, which is told the scope")
        if told := self._conn.to_tell(b"COPY"):
            yield from self._conn._exec_command(told)
        self._copies = True
        try:
            yield from super()._start_copy_gen(statement, params)  # type: ignore[misc]
        finally:
            self._copies = False


class ScopedCursor(TellingMixin, base.Cursor):  # type: ignore[misc,name-defined]
    pass


class ScopedServerSideCursor(TellingMixin, base.ServerSideCursor):  # type: ignore[misc,name-defined]
    def _fetch_gen(self: Any, num: int | None) -> Generator[Any, Any, list[Any]]:
        """Policies are asked when rows are fetched: a statement in between may have told another scope."""
        in_transaction = self._pgconn.transaction_status == TransactionStatus.INTRANS
        if in_transaction and (told := self._conn.to_tell(b"DECLARE")):
            yield from self._conn._exec_command(told)
        fetched: list[Any] = yield from super()._fetch_gen(num)  # type: ignore[misc]
        return fetched
