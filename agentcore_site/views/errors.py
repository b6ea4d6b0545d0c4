"""The pages for what went wrong. None of them needs the database or more of the request than its id."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

PROBLEM = "application/problem+json"


def server_error(request: HttpRequest) -> HttpResponse:
    """500: logged by Django with the request's id."""
    if _wants_json(request):
        return _problem(request, 500, "Internal error", "Something broke on our side. It was logged.")
    return render(request, "500.html", status=500)


def not_found(request: HttpRequest, exception: Any = None) -> HttpResponse:
    if _wants_json(request):
        return _problem(request, 404, "Not found", "There is nothing here for you under this address.")
    return render(request, "404.html", status=404)


def forbidden(request: HttpRequest, exception: Any = None) -> HttpResponse:
    if _wants_json(request):
        return _problem(request, 403, "Not allowed", "You may not do this.")
    return render(request, "403.html", status=403)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that was open for too long, or cookies that are switched off."""
    message = "The form was too old or cookies are switched off. Go back, load the page again and send it once more."
    return render(request, "403.html", {"message": message}, status=403)


def _wants_json(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/", "/internal/", "/v1/", "/health/"))


def _problem(request: HttpRequest, status: int, title: str, detail: str) -> JsonResponse:
    request_id = getattr(request, "request_id", "")
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "request_id": request_id}
    return JsonResponse(body, status=status, content_type=PROBLEM)
