"""``manage.py migrate`` without blocking others: a change of a table gives up after seconds if others use the table,
and is tried again.

A session that waits for a lock on a table makes all later ones wait behind it. Without a limit one long read
would stop the whole site for its duration. Each migration is one transaction: applied migrations stay applied.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from psycopg.errors import LockNotAvailable

from agentcore_site.secret_key import OtherSecretKey, require_same

LOCK_SECONDS: Final = 5
REFUSED: Final = 3  # the exit code of --check where this host may not work on the database
TRIES: Final = 20
PAUSE_SECONDS: Final = 2.0  # in which the sessions that waited behind this one have their turn


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        """With ``--check`` also whether this host's SECRET_KEY is the database's: the single question of a role before
        it starts, in one process.

        Raises:
            CommandError: a table was in use through all attempts.
            SystemExit: with ``--check``, 1 if a migration is missing, REFUSED if the key differs.
        """
        connection = connections[options["database"]]
        for number in range(1, TRIES + 1):
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
                super().handle(*args, **options)
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                self.stderr.write(f"A table is in use: tried {number} of {TRIES} times, {LOCK_SECONDS} s each.")
                time.sleep(PAUSE_SECONDS)
            else:
                with connection.cursor() as cursor:
                    cursor.execute("RESET lock_timeout")
                if options["check_unapplied"]:
                    self._check_key()
                return
        raise CommandError("A table was in use all the time. End what uses it (pg_stat_activity), then migrate again.")

    def _check_key(self) -> None:
        try:
            require_same()
        except OtherSecretKey as error:
            self.stderr.write(str(error))
            sys.exit(REFUSED)
