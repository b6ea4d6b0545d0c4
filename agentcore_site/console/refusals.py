"""Middleware for refusals that no view handled, e.g. of a sign-in in the Django admin."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from agentcore_site.console.pages import refusal
from agentcore_site.lib.errors import DomainError


class RefusalMiddleware:
    """Turns a ``DomainError`` of any page into a page with its message."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return refusal(request, exception) if isinstance(exception, DomainError) else None
