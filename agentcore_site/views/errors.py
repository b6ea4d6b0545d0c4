"""Error pages. They work without a database, and need no more of the request than its id."""

from __future__ import annotations

import sys
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from agentcore_site.console.pages import is_part, shell
from agentcore_site.lib.database import trouble_in
from agentcore_site.middleware import away

PROBLEM = "application/problem+json"
PROGRAMS = ("/api/", "/internal/", "/v1/", "/health/")


def server_error(request: HttpRequest) -> HttpResponse:
    """500: logged by Django with the request's id. A database that goes away outside of a view, as when the session is
    saved, is answered as elsewhere."""
    error = sys.exception()
    if error is not None and (trouble := trouble_in(error)) is not None:
        return away(request, trouble)
    return _answer(request, 500, "Internal error", "An error occurred on the server. It was logged.")


def not_found(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 404, "Not found", "This page does not exist, or you may not see it.")


def forbidden(request: HttpRequest, exception: Any = None) -> HttpResponse:
    return _answer(request, 403, "Not allowed", "You may not do this.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that was open for too long, or cookies that are switched off."""
    message = "The form was too old or cookies are switched off. Go back, load the page again and send it once more."
    return _answer(request, 403, "Not allowed", message, context={"message": message})


def _answer(
    request: HttpRequest, status: int, title: str, detail: str, *, context: dict[str, Any] | None = None
) -> HttpResponse:
    """JSON for programs, a notice where htmx asked, a page for people."""
    if request.path_info.startswith(PROGRAMS):
        request_id = getattr(request, "request_id", "")
        body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "request_id": request_id}
        return JsonResponse(body, status=status, content_type=PROBLEM)
    if is_part(request):
        return render(request, "parts/notice.html", {"message": detail}, status=status)
    inside = shell(request) if status in (403, 404) else {}
    return render(request, f"{status}.html", {**inside, **(context or {})}, status=status)
