"""Is it alive, is it ready, and what is wrong with which dependency (SPEC O4)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentcore_site.celery import app
from agentcore_site.jobs.models import Job, Status

OK, DEGRADED, DOWN = "ok", "degraded", "down"
REDIS_SECONDS: Final = 1.0
PING_SECONDS: Final = 0.5


class Finding(NamedTuple):
    """``status`` is how bad it is for the whole: without Redis jobs wait, without PostgreSQL nothing works."""

    status: str
    detail: str
    more: dict[str, Any] = {}


@require_safe
@never_cache
def live(request: HttpRequest) -> JsonResponse:
    """The process answers. Depends on nothing: a restart mends no database."""
    return JsonResponse({"status": OK})


@require_safe
@never_cache
def ready(request: HttpRequest) -> JsonResponse:
    """Whether requests may be sent here. Redis away is degraded, not dead: jobs are still accepted (SPEC O5)."""
    return _answer({"database": database, "migrations": migrations, "redis": broker})


@require_safe
@never_cache
def status(request: HttpRequest) -> JsonResponse:
    """Every dependency by name, with how long it took to ask."""
    checks: dict[str, Callable[[], Finding]] = {
        "database": database,
        "migrations": migrations,
        "redis": broker,
        "workers": workers,
        "storage": storage,
    }
    return _answer(checks)


def database() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return Finding(OK, "answers")


def migrations() -> Finding:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        return Finding(DOWN, f"{len(missing)} migrations are not applied; run manage.py migrate")
    return Finding(OK, "applied")


def broker() -> Finding:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS
        ) as client:
            client.ping()
    except redis.RedisError:
        return Finding(DEGRADED, "away: jobs are accepted and wait, live pages poll")
    return Finding(OK, "answers")


def workers() -> Finding:
    """Workers that hold a job, by its lease in the database, and those that answer a ping."""
    busy = Job.objects.filter(lease_until__gt=Now()).values("worker").distinct().count()
    queued = Job.objects.filter(status__in=(Status.QUEUED, Status.RUNNING), lease_until=None).count()
    more = {"busy": busy, "answering": _answering(), "jobs_waiting": queued}
    if busy or more["answering"]:
        return Finding(OK, "at work" if busy else "idle", more)
    return Finding(DEGRADED, "no worker is seen: jobs wait until one is up", more)


def storage() -> Finding:
    try:
        default_storage.exists("health")
    except Exception:  # each storage has errors of its own, and none may take this page down
        return Finding(DEGRADED, "away: checkpoints above 10 MB can't be saved or loaded")
    return Finding(OK, "answers")


def _answering() -> int:
    try:
        with app.connection_for_write(transport_options={"socket_connect_timeout": PING_SECONDS}) as link:
            return len(app.control.ping(timeout=PING_SECONDS, connection=link) or [])
    except Exception:  # kombu raises many kinds; a broker that is away has its own line on this page
        return 0


def _answer(checks: dict[str, Callable[[], Finding]]) -> JsonResponse:
    found = {name: _looked_at(check) for name, check in checks.items()}
    worst = max((one["status"] for one in found.values()), key=(OK, DEGRADED, DOWN).index)
    return JsonResponse({"status": worst, "dependencies": found}, status=503 if worst == DOWN else 200)


def _looked_at(check: Callable[[], Finding]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        finding = check()
    except Exception:  # the reason may name hosts and users: it is not for everybody who can ask for this page
        finding = Finding(DOWN, "can't be reached")
    took = round(1000 * (time.monotonic() - began), 1)
    return {"status": finding.status, "detail": finding.detail, "milliseconds": took, **finding.more}
