"""A read replica for lists and exports.

It is asked only where it has replayed all that the primary had committed when the question came. So an answer
from it is never older than the question. Away, or further behind than a moment: the primary is asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model, QuerySet
from prometheus_client import Counter

from agentcore_site.lib.database import TROUBLE

log = logging.getLogger(__name__)

ALIAS: Final = "replica"
MOST_BEHIND: Final = 0.05  # seconds that a question waits for it
POLL_SECONDS: Final = 0.005
REST: Final = 2.0  # seconds for which one that was away or behind is not asked again

reads = Counter(
    "database_replica_reads_total", "Lists and batches of exports, by where they were read from.", ["source"]
)
# Written and flushed at once. A replica replays whole records: the last one that it was sent may be in part, while the
# primary has nothing more to send.
PUSH: Final = "SELECT pg_logical_emit_message(false, 'agentcore', '', flush => true)"

M = TypeVar("M", bound=Model)
T = TypeVar("T")


class PrimaryRouter:
    """All but what asks for the replica goes to the primary, also what belongs to rows that were read there."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return DEFAULT_DB_ALIAS

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        return DEFAULT_DB_ALIAS

    def allow_relation(self, one: Model, other: Model, **hints: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == DEFAULT_DB_ALIAS


class _Resting:
    """Until when this process does not ask it."""

    until = 0.0


def from_replica(rows: QuerySet[M], query: Callable[[QuerySet[M]], T]) -> T:
    """Runs ``query`` on the rows, on the replica where there is one that has them all. It may run a second time."""
    if ALIAS not in connections or connection.in_atomic_block:  # a transaction reads what it wrote
        return query(rows)
    if time.monotonic() >= _Resting.until:
        try:
            if _caught_up():
                found = query(rows.using(ALIAS))
                reads.labels("replica").inc()
                return found
        except TROUBLE as error:
            log.warning("the replica is not asked for %g s: %s", REST, error)
        _Resting.until = time.monotonic() + REST
    reads.labels("primary").inc()
    return query(rows)


def _caught_up() -> bool:
    with connection.cursor() as primary, connections[ALIAS].cursor() as replica:
        primary.execute("SELECT pg_current_wal_insert_lsn()")
        [written] = primary.fetchone() or [None]
        deadline = 0.0
        while True:
            replica.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written])
            if replica.fetchone() == (True,):
                return True
            if not deadline:
                primary.execute(PUSH)
                deadline = time.monotonic() + MOST_BEHIND
            elif time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)


def seconds_behind() -> float | None:
    """Age of the last transaction that the replica has replayed. None: that server is no replica.

    Raises:
        django.db.Error: it can't be asked.
    """
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery(), extract(epoch FROM now() - pg_last_xact_replay_timestamp())::float")
        recovering, behind = cursor.fetchone() or (False, None)
    return (behind or 0.0) if recovering else None
