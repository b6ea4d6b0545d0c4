"""The two roles of the test database: it is made by the owner, and tests run as the application does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from agentcore_site import env

LOGIN = ("USER", "PASSWORD")


def share_with_application(cursor: Any) -> None:
    """In tests alone the application's role may empty tables, and become the owner where it says so (``as_owner``)."""
    application = settings.DATABASE_APPLICATION_ROLE
    if application == connection.settings_dict["USER"]:
        return
    cursor.execute(f"GRANT TRUNCATE ON ALL TABLES IN SCHEMA public TO {application}")
    cursor.execute(f"GRANT {connection.settings_dict['USER']} TO {application} WITH INHERIT FALSE, SET TRUE")


def leave() -> None:
    """From here on this process and those that it starts connect with the application's role."""
    os.environ.pop("DATABASE_AS_OWNER", None)
    _connect_with(settings.APPLICATION)


def come_back() -> None:
    _connect_with(env.database_settings(env.services().owner_url))


def _connect_with(account: dict[str, Any]) -> None:
    connection.close()
    connection.settings_dict.update({name: account[name] for name in LOGIN})


@contextmanager
def as_owner() -> Iterator[None]:
    """Runs statements that only the owner of the tables may run, such as switching a trigger off."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'django_migrations'")
        cursor.execute(f"SET ROLE {cursor.fetchone()[0]}")
        yield
        cursor.execute("RESET ROLE")
