"""Lists workers: those that hold a job, those that held one a moment ago, and those that answer a ping."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from agentcore_site.celery import app
from agentcore_site.jobs.models import Job
from agentcore_site.lib.row_scope import everything

PING_SECONDS: Final = 0.5
A_MOMENT: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Workers:
    """``busy``: how many hold a lease. ``recent``: how many held one within the last minute, the busy ones included.
    ``answering``: names by which they answer a ping; None if the broker does not answer. A busy worker may answer late,
    so that a missing answer alone never means that there is none."""

    busy: int
    recent: int
    answering: list[str] | None

    @property
    def state(self) -> str:
        """at_work, idle, none, or unknown: no worker is seen, and the broker does not answer."""
        if self.busy:
            return "at_work"
        if self.answering or self.recent:
            return "idle"
        return "unknown" if self.answering is None else "none"


@everything()
def workers_seen() -> Workers:
    """Queries the database and the broker; takes up to half a second."""
    held = Q(lease_until__gt=Now())
    jobs = Job.objects.exclude(worker="")
    lately = held | Q(finished_at__gt=Now() - A_MOMENT) | Q(updated_at__gt=Now() - A_MOMENT)
    return Workers(_count(jobs.filter(held)), _count(jobs.filter(lately)), _answering())


def _count(jobs: QuerySet[Job]) -> int:
    return jobs.order_by().values("worker").distinct().count()


def _answering() -> list[str] | None:
    try:
        with app.connection_for_write(transport_options=dict(settings.REDIS_TIMEOUTS)) as link:
            replies = app.control.ping(timeout=PING_SECONDS, connection=link) or []
    except Exception:  # kombu raises many kinds
        return None
    return sorted(name for reply in replies for name in reply)
