"""Middleware of every request: an id that logs and error pages share, and a clear answer without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.defaults import bad_request

from agentcore_site.changes import changed_nothing, changes_noted
from agentcore_site.lib import trace_context
from agentcore_site.lib.database import TROUBLE, crossed, error_type
from agentcore_site.lib.error_metrics import errors
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.trace_context import TraceParent, request_id
from agentcore_site.telemetry import inside, tracer

AWAY: Final = "The database can't be reached at the moment."
BUSY: Final = "Someone else is changing the same at this moment."
SAFE: Final = ("GET", "HEAD", "OPTIONS", "TRACE")

Respond = Callable[[HttpRequest], HttpResponse]


class RequestId:
    """Takes the caller's ``X-Request-Id`` or makes one; the id is in the logs and in the response."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        value = trace_context.request_id_of(request.headers.get("X-Request-Id", ""))
        token = request_id.set(value)
        request.request_id = value  # type: ignore[attr-defined]
        try:
            with self._traced(request):
                response = self.get_response(request)
        finally:
            request_id.reset(token)
        response["X-Request-Id"] = value
        if response.streaming:
            response["X-Accel-Buffering"] = "no"  # a proxy passes it on as it comes
        return response

    @contextmanager
    def _traced(self, request: HttpRequest) -> Iterator[None]:
        """The request belongs to its caller's trace, or begins one. One that may change something is a span: jobs are
        launched by such."""
        given = trace_context.parsed(request.headers.get(trace_context.HEADER, ""))
        by = None if request.method in SAFE else tracer()
        if by is None:
            with trace_context.work(given or trace_context.begun()):
                yield
            return
        with by.start_as_current_span(f"{request.method} {request.path}", context=inside(given)) as span:
            span.set_attribute("request_id", request_id.get())
            own = span.get_span_context()
            with trace_context.work(TraceParent(f"{own.trace_id:032x}", f"{own.span_id:016x}")):
                yield


class AskedByAddress:
    """Probes and Prometheus name a process by its IP address, which is none of ``ALLOWED_HOSTS``. The answers to them
    depend on no host. Another name is checked as everywhere: a foreign page may have it lead to this machine."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        asked = request.path_info == "/metrics" or request.path_info.startswith("/health/")
        if asked and _is_address(request.META.get("HTTP_HOST", "")):
            host = settings.ALLOWED_HOSTS[0].removeprefix(".") if settings.ALLOWED_HOSTS else "localhost"
            request.META["HTTP_HOST"] = "localhost" if host == "*" else host
        return self.get_response(request)


def _is_address(host: str) -> bool:
    """Whether a ``Host`` header has an IP address, with a port or without."""
    try:
        ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


class StorableQuery:
    """In the admin, a query string that no database can be asked for (with NUL in it) is a 400. The console and the
    API check theirs themselves."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        admins = request.path_info.startswith("/admin/")
        given = [[name, *values] for name, values in request.GET.lists()] if admins else []
        if unstorable(given):
            return bad_request(request, SuspiciousOperation())
        return self.get_response(request)


class DatabaseUnavailable:
    """PostgreSQL away: a clear 503, not a stack trace, which says only what is known."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with changes_noted():
            return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, TROUBLE):
            return None
        errors.labels(error_type=error_type(exception), component="web").inc()
        return away(request, exception)


def away(request: HttpRequest, error: BaseException) -> HttpResponse:
    """503 as every interface says it."""
    message, busy = away_message(request, error), crossed(error)
    if request.path_info.startswith(("/api/", "/internal/", "/health/", "/metrics")):
        body = {
            "type": "about:blank",
            "title": "Database busy" if busy else "Database away",
            "status": 503,
            "detail": message,
        }
        body["request_id"] = request_id.get()
        response: HttpResponse = JsonResponse(body, status=503, content_type="application/problem+json")
    else:
        response = render(request, "503.html", {"message": message, "busy": busy}, status=503)
    response["Retry-After"] = wait_seconds(error)
    return response


def wait_seconds(error: BaseException) -> str:
    """For ``Retry-After``."""
    return "1" if crossed(error) else "30"


def away_message(request: HttpRequest, error: BaseException) -> str:
    """The message for a request whose database is gone, or gave the request up."""
    what, when = (BUSY, "Try again.") if crossed(error) else (AWAY, "Try again in a minute.")
    if request.method in SAFE or changed_nothing():
        return f"{what} Nothing was changed. {when}"
    return (
        f"{what} What you asked for may have been done: look before you try again. If it was, the audit log names it"
        f" with the request id {request_id.get()}."
    )
