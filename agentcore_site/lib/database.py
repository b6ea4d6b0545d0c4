"""The database's own errors, and COPY: parts that Django's connection leaves to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction

# Django wraps the driver's errors in its own in known calls; a COPY that is written row by row, or a
# connection that breaks while a cursor is closed, may still raise the driver's.
TROUBLE: Final = (
    OperationalError,
    InterfaceError,
    InternalError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
)
CROSSED: Final = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock not available
PROGRAM_LIMIT: Final = "54"  # the SQLSTATE class of impossible writes, like a row that is too big for an index


def trouble_in(error: BaseException) -> BaseException | None:
    """The database error that caused ``error``: unavailable, restarting, failing over, without room, or a session
    ended.

    Such an error does not depend on the statement, which may be tried again. None: another error.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TROUBLE) and not _sqlstate(cause).startswith(PROGRAM_LIMIT):
            return cause
        cause = cause.__cause__
    return None


def crossed(error: BaseException | None) -> bool:
    """True if the database rolled this transaction back in favour of another one on the same rows. It can be tried
    again at once."""
    return error is not None and _sqlstate(error) in CROSSED


def error_type(error: BaseException) -> str:
    """The database error's label in metrics. A conflict of two changes is not an outage: no alert for it."""
    return "database_busy" if crossed(error) else "database_away"


def _sqlstate(error: BaseException) -> str:
    driver = error if isinstance(error, psycopg.Error) else error.__cause__
    return getattr(driver, "sqlstate", None) or ""


@contextmanager
def no_news() -> Iterator[None]:
    """Suppresses the triggers that notify listeners of tables (events, the warehouse): they know the block's changes
    already. In the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL agentcore.not_news = 'on'")
        yield
        cursor.execute("SET LOCAL agentcore.not_news = ''")


@contextmanager
def copying(command: str, values: Sequence[Any] = ()) -> Iterator[psycopg.Copy]:
    """A ``COPY`` from or to here, which ends with the block.

    Raises:
        django.db.Error: as for every other statement.
    """
    # The scope of rows can be set for a transaction only (agentcore_site.postgresql.scoped).
    with (
        transaction.atomic(savepoint=False),
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        _ended_session_as_operational_error(),
        cursor.copy(command, values) as copy,
    ):
        yield copy


@contextmanager
def _ended_session_as_operational_error() -> Iterator[None]:
    """If PostgreSQL ends a session during a COPY the driver gets two answers, the reason and the end. It expects one,
    and reports a programming error: a restart of the database would fail a job for good."""
    try:
        yield
    except (psycopg.ProgrammingError, ValueError) as error:
        if not _of_two_answers(error):
            raise
        raise psycopg.OperationalError("PostgreSQL ended the session during a COPY.") from error


def _of_two_answers(error: Exception) -> bool:
    """True if the driver raised it for more than one answer, as its generators copy_end, copy_from and that of the
    cursor do."""
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is None and "COPY" in str(error) and "mix" in str(error)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_name == "copy_end"
