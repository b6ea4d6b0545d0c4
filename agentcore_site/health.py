"""Health: alive, ready, and the state of each dependency."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.core.cache import cache
from django.core.files.storage import default_storage
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.settings import api_settings

from agentcore_site import env
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.wakeup import messages_waiting
from agentcore_site.jobs.workers import workers_seen
from agentcore_site.lib import disk
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.heartbeats import PARTS, heartbeat_key
from agentcore_site.lib.redis_address import redis_client
from agentcore_site.lib.row_scope import everything
from agentcore_site.postgresql.replica import ALIAS, seconds_behind
from agentcore_site.tenancy.authentication import actor_of

OK, DEGRADED, DOWN = "ok", "degraded", "down"
DEADLINE: Final = 1.5
CLOCK_SECONDS: Final = 5.0  # leases and expiries of tasks are of seconds
KEPT_SECONDS: Final = 5.0


class HealthFinding(NamedTuple):
    """``status``: the severity for the whole site: without Redis jobs wait, without PostgreSQL nothing works."""

    status: str
    detail: str
    more: dict[str, Any] = {}


@require_safe
@never_cache
def live(request: HttpRequest) -> JsonResponse:
    """Answers if the process does. Depends on nothing else: a restart repairs no database."""
    return JsonResponse({"status": OK})


@require_safe
@never_cache
def ready(request: HttpRequest) -> JsonResponse:
    """Whether requests may be sent here. Without Redis the site is degraded, not down: it still accepts jobs."""
    return _answer(request, READY)


@require_safe
@never_cache
def status(request: HttpRequest) -> JsonResponse:
    """The same for clients that are not members; members see each dependency by name, with the time of its check."""
    return _answer(request, (*READY, "broker", "workers", "storage", "disk", *EVENTS, *BROUGHT))


def database() -> HealthFinding:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        [ours] = cursor.fetchone()
    if abs(ahead := time.time() - ours) > CLOCK_SECONDS:
        how = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        return HealthFinding(DEGRADED, f"the clock of this host is {how} the database's: set both by NTP")
    return HealthFinding(OK, "answers")


def migrations() -> HealthFinding:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        return HealthFinding(DOWN, f"{len(missing)} migrations are not applied; run {env.COMMAND} migrate")
    return HealthFinding(OK, "applied")


def redis_answers() -> HealthFinding:
    try:
        with redis_client(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
            client.ping()
    except redis.RedisError:
        return HealthFinding(DEGRADED, "away: jobs are accepted and wait, live pages poll")
    return HealthFinding(OK, "answers")


def broker() -> HealthFinding:
    """Broker of messages to workers, if it is not Redis."""
    if settings.CELERY_BROKER_URL == settings.REDIS_URL:
        return HealthFinding(OK, "is Redis")
    if messages_waiting() is None:
        return HealthFinding(DEGRADED, "away: jobs are accepted and wait")
    return HealthFinding(OK, "answers")


def workers() -> HealthFinding:
    """Workers that hold a job, by its lease in the database, and those that answer a ping."""
    seen = workers_seen()
    queued = Job.objects.filter(status__in=(Status.QUEUED, Status.RUNNING), lease_until=None).count()
    more = {"busy": seen.busy, "answering": len(seen.answering or ()), "jobs_waiting": queued}
    if seen.state in ("at_work", "idle"):
        return HealthFinding(OK, seen.state.replace("_", " "), more)
    return HealthFinding(DEGRADED, "no worker is seen: jobs wait until one is up", more)


def storage() -> HealthFinding:
    try:
        default_storage.exists("health")
    except Exception:  # each storage has errors of its own, and none may break this page
        return HealthFinding(DEGRADED, "away: checkpoints above 10 MB can't be saved or loaded")
    return HealthFinding(OK, "answers")


def room() -> HealthFinding:
    full = disk.shortage()
    if full:
        return HealthFinding(DEGRADED, f"{full} Jobs wait and launches are refused until then.")
    return HealthFinding(OK, "has room")


def nats() -> HealthFinding:
    """Healthy if one of the NATS servers accepts a connection: no message is sent."""
    if not settings.NATS_URL:
        return HealthFinding(OK, "off: no events go out or come in")
    for server in settings.NATS_URL.split(","):
        parts = urlsplit(server.strip())
        try:
            with socket.create_connection((parts.hostname or "localhost", parts.port or 4222), timeout=DEADLINE / 3):
                return HealthFinding(OK, "answers")
        except OSError:
            continue
    return HealthFinding(DEGRADED, "away: events wait in the outbox")


def _events_part(name: str) -> HealthFinding:
    if not settings.NATS_URL:
        return HealthFinding(OK, "off")
    if cache.get(heartbeat_key(name)):
        return HealthFinding(OK, "at work")
    return HealthFinding(DEGRADED, f"not seen: run {env.COMMAND} feedback_loop")


CHECKS: Final[dict[str, Callable[[], HealthFinding]]] = {
    "database": database,
    "migrations": migrations,
    "redis": redis_answers,
    "broker": broker,
    "workers": workers,
    "storage": storage,
    "disk": room,
    "nats": nats,
    "relay": partial(_events_part, "relay"),
    "consumers": partial(_events_part, "consumers"),
}
READY: Final = ("database", "migrations", "redis")
EVENTS: Final = ("nats", *PARTS)


def replica() -> HealthFinding:
    try:
        behind = seconds_behind()
    finally:
        connections[ALIAS].close()
    if behind is None:
        return HealthFinding(DEGRADED, "is no replica: lists and exports are read from the primary")
    return HealthFinding(OK, f"replayed a transaction {behind:.1f} s ago")


class Board:
    """Results of the checks of all dependencies. They run at once, each in a thread of its own and for at most
    ``DEADLINE`` seconds together; results are reused for ``KEPT_SECONDS``."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._found: dict[str, dict[str, Any]] = {}
        self._asked = -math.inf
        self._under_way: dict[str, Future[dict[str, Any]]] = {}
        self._threads = ThreadPoolExecutor(len(CHECKS), thread_name_prefix="health")

    def found(self) -> dict[str, dict[str, Any]]:
        with self._guard:  # concurrent callers share one round
            if time.monotonic() - self._asked > KEPT_SECONDS:
                self._found = self._ask()
                self._asked = time.monotonic()
            return self._found

    def forget(self) -> None:
        self._asked = -math.inf

    def _ask(self) -> dict[str, dict[str, Any]]:
        began = time.monotonic()
        for name in CHECKS:
            # A check that still hangs from the last round is not started a second time.
            if name not in self._under_way:
                self._under_way[name] = self._threads.submit(_checked, name)
        done, _ = wait(self._under_way.values(), DEADLINE)
        took = round(1000 * (time.monotonic() - began), 1)
        silent = {"status": DOWN, "detail": "does not answer", "milliseconds": took}
        found = {name: one.result() if one in done else silent | WITHOUT.get(name, {}) for name, one in self._items()}
        self._under_way = {name: one for name, one in self._items() if one not in done}
        return found

    def _items(self) -> list[tuple[str, Future[dict[str, Any]]]]:
        return [(name, self._under_way[name]) for name in CHECKS]


# A dependency that only makes jobs wait is no reason to send requests elsewhere.
WITHOUT: Final[dict[str, dict[str, Any]]] = {
    name: {"status": DEGRADED} for name in ("redis", "broker", "workers", "storage", "disk", *EVENTS)
}
BROUGHT: Final[list[str]] = []  # by apps that this module does not know
_boards: dict[int, Board] = {}


def check_register(name: str, check: Callable[[], HealthFinding]) -> None:
    """Adds an optional dependency of an app. Call it when the app is ready, before the first check."""
    CHECKS[name], WITHOUT[name] = check, {"status": DEGRADED}
    BROUGHT.append(name)


if ALIAS in connections:
    check_register(ALIAS, replica)


def board() -> Board:
    """The board of this process; created again after a fork, which copies no threads."""
    return _boards.setdefault(os.getpid(), Board())


def _answer(request: HttpRequest, names: Sequence[str]) -> JsonResponse:
    everything = board().found()
    found = {name: everything[name] for name in names}
    worst = max((one["status"] for one in found.values()), key=(OK, DEGRADED, DOWN).index)
    body: dict[str, Any] = {"status": worst}
    if found["database"]["status"] == OK and _is_member(request):
        body["dependencies"] = found
    return JsonResponse(body, status=503 if worst == DOWN else 200)


def _is_member(request: HttpRequest) -> bool:
    """True if the request comes from a member of an organisation: by session, key or token, as in REST."""
    ways: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    try:
        asked = Request(request, authenticators=[way() for way in ways])
        return bool(asked.user.is_authenticated and actor_of(asked).memberships)
    except (APIException, *TROUBLE):
        return False


@everything()
def _checked(name: str) -> dict[str, Any]:
    began = time.monotonic()
    try:
        finding = CHECKS[name]()
    except Exception:  # the reason may name hosts and users: this page is public
        finding = HealthFinding(WITHOUT.get(name, {}).get("status", DOWN), "can't be reached")
    finally:
        connection.close()
    took = round(1000 * (time.monotonic() - began), 1)
    return {"status": finding.status, "detail": finding.detail, "milliseconds": took, **finding.more}
