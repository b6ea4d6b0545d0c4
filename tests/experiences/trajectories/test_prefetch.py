"""Pieces that a thread reads while the caller works."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from agentcore_site.lib import row_scope
from agentcore_site.lib.prefetch import prefetch
from tests.support.workers import eventually

working = pytest.mark.django_db(transaction=True)


def sessions(but: int) -> int:
    """Of this database, other than that of a process of the server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
            " AND application_name = %s AND backend_type = 'client backend'",
            [but, connection.settings_dict["OPTIONS"]["application_name"]],
        )
        return int(cursor.fetchone()[0])


def pieces(n: int) -> Iterator[tuple[int, str, int]]:
    """n pieces: a number, the scope that the database sees, and the server's process."""
    for number in range(n):
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('agentcore.scope', true), pg_backend_pid()")
            scope, pid = cursor.fetchone()
        yield number, scope, pid


@working
def test_the_next_piece_is_read_while_the_caller_works_and_no_further_one() -> None:
    begun: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(5):
            begun.append(number)
            yield number

    seen = []
    for piece in prefetch(counted()):
        eventually(lambda piece=piece: len(begun) == min(piece + 2, 5), why="the next one")
        seen.append(piece)
    assert seen == [0, 1, 2, 3, 4]


@working
def test_the_thread_sees_the_callers_rows_by_a_connection_of_its_own_that_ends() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [own] = cursor.fetchone()
    before = sessions(own)
    organization = uuid.UUID("0197b3b0-0000-7000-8000-000000000001")
    with row_scope.limited(row_scope.scope_of([organization])):
        result = list(prefetch(pieces(4)))
    assert [number for number, _, _ in result] == [0, 1, 2, 3]
    assert {scope for _, scope, _ in result} == {f"{{{organization}}}"}
    [other] = {pid for _, _, pid in result[1:]}
    assert result[0][2] == own != other
    eventually(lambda: sessions(own) == before, why="the end of its session")


@working
def test_a_reader_that_stops_leaves_no_thread_and_no_session_behind() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [own] = cursor.fetchone()
    before = sessions(own)
    waiting = prefetch(pieces(100))
    next(waiting)
    waiting.close()
    eventually(lambda: sessions(own) == before, why="the end of its session")
    eventually(lambda: not any(t.name.startswith("prefetch") for t in threading.enumerate()), why="its thread's end")


@working
def test_the_exception_of_a_piece_is_raised_at_its_place() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    seen: list[Any] = []
    with pytest.raises(ValueError, match="the second"):
        seen.extend(prefetch(broken()))
    assert seen == [1] and list(prefetch(iter(()))) == []


@pytest.mark.django_db
def test_inside_of_a_transaction_the_caller_reads() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [own] = cursor.fetchone()
    assert {pid for _, _, pid in prefetch(pieces(3))} == {own}
