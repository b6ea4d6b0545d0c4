"""A migration beside those who use its tables."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate as shipped
from django.db import connection

from agentcore_site.embedded.management.commands import migrate
from tests.support.owner import as_owner
from tests.support.workers import environment

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def changes_a_table(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In the place of migrations: one that needs the table of agents for itself. The list counts its tries."""
    tries: list[int] = []

    def handle(self: Any, *args: Any, **options: Any) -> None:
        tries.append(1)
        with connection.cursor() as cursor, as_owner():
            try:
                cursor.execute("ALTER TABLE experiences_agent ALTER COLUMN name DROP DEFAULT")
            finally:
                cursor.execute("RESET ROLE")

    monkeypatch.setattr(shipped.Command, "handle", handle)
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.05)
    return tries


def test_migration_gives_way_to_those_who_read_and_comes_back(
    changes_a_table: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 1)
    reader = psycopg.connect(environment()["DATABASE_URL"])
    reader.execute("SELECT count(*) FROM experiences_agent")  # its transaction stays open
    threading.Timer(1.5, reader.close).start()
    call_command("migrate")
    assert len(changes_a_table) == 2
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_migration_says_what_to_do_where_a_table_is_in_use_all_the_time(
    changes_a_table: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 1)
    monkeypatch.setattr(migrate, "TRIES", 1)
    with psycopg.connect(environment()["DATABASE_URL"]) as reader:
        reader.execute("SELECT count(*) FROM experiences_agent")
        with pytest.raises(CommandError, match="was in use all the time"):
            call_command("migrate")
