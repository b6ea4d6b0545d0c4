"""Celery's beat on several hosts: one of them schedules the tasks, another takes over when the first is gone."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, Final

from celery.beat import PersistentScheduler
from django.conf import settings
from django.db import connection

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.due_work import has_work
from agentcore_site.lib.heartbeats import heartbeat
from agentcore_site.lib.host_ids import process_host_id
from agentcore_site.models import SiteFact

log = logging.getLogger(__name__)

FACT: Final = "beat_lease"
SECONDS: Final = 10.0  # after so long without a renewal another beat may take the lease
RENEWED: Final = 3.0
UNASKED: Final = 30.0  # after so many seconds a task is sent whether or not work is seen for it
AHEAD: Final = timedelta(seconds=2)  # of the clock: a task that ran later than now

# A row and not an advisory lock, which would not outlive a transaction behind a pooler. The row's value: the holder, a
# space, and the end of the lease by the database's clock.
TAKE: Final = f"""
INSERT INTO {SiteFact._meta.db_table} (name, value, updated_at)
VALUES (%(fact)s, %(holder)s || ' ' || (extract(epoch FROM clock_timestamp()) + %(seconds)s)::text, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at
WHERE split_part({SiteFact._meta.db_table}.value, ' ', 1) = %(holder)s
   OR split_part({SiteFact._meta.db_table}.value, ' ', 2)::float8 < extract(epoch FROM clock_timestamp())
"""  # noqa: S608  (our own table's name)


class BeatLease:
    """The lease of one beat at a time. ``holder``: its name, the same after a restart on the same host and folder."""

    def __init__(self, holder: str, *, seconds: float = SECONDS, renewed: float = RENEWED) -> None:
        self._holder, self._seconds, self._renewed = holder.replace(" ", "_"), seconds, renewed
        self._mine, self._asked_at = False, float("-inf")

    def held(self) -> bool:
        """True if this beat holds the lease, checked in the database at intervals. If the database is unavailable, the
        last result stays."""
        if time.monotonic() - self._asked_at < self._renewed:
            return self._mine
        try:
            mine = self._take()
        except TROUBLE as error:
            log.warning("the lease of the beat could not be renewed: %s", error)
            connection.close()
        else:
            if mine != self._mine:
                log.warning(
                    "this beat %s", "schedules the tasks" if mine else "is on standby: another beat schedules the tasks"
                )
            self._mine = mine
        self._asked_at = time.monotonic()
        return self._mine

    def _take(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(TAKE, {"fact": FACT, "holder": self._holder, "seconds": self._seconds})
            return cursor.rowcount == 1


class LeasedScheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """Schedules tasks only while it holds the lease, and those without work seldom."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lease = BeatLease(process_host_id(settings.DATA_DIR))
        self._sent_at: dict[str, float] = {}
        super().__init__(*args, **options)

    def tick(self, *args: Any, **options: Any) -> float:
        """Celery calls this method again and again. Returns the seconds until the next task is due."""
        heartbeat()
        if not self._lease.held():
            return 1.0
        self._follow_clock()
        return float(super().tick(*args, **options))

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Celery calls this method when a task is due. One that has no work is left out."""
        now = time.monotonic()
        if now - self._sent_at.get(entry.task, float("-inf")) < UNASKED and not has_work(entry.task):
            return
        self._sent_at[entry.task] = now
        super().apply_entry(entry, producer=producer)

    def _follow_clock(self) -> None:
        """Plans tasks by the new time where the clock went back: they would wait for as long as it went back."""
        now = self.app.now()  # once: to read the clock with its time zone costs as much as the rest of a tick
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at > now + AHEAD]
        if ahead:
            log.warning("the clock went back: %d tasks are planned by the new time", len(ahead))
            for entry in ahead:
                entry.last_run_at = now
            self._heap = None  # made again by the next tick
