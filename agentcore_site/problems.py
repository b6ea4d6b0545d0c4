"""Errors over REST as RFC 9457 problem details, with a message that says what to do."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from agentcore_site.errors import DomainError


def handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. What it does not know becomes Django's 500 (logged, with the request id)."""
    headers: dict[str, str] = {}
    if isinstance(error, DomainError):
        status, title, detail, fields = error.code, error.title, error.message, error.fields
    elif isinstance(error, exceptions.ValidationError):
        fields = flat(error.detail)
        status, title = 400, "Invalid request"
        detail = " ".join(f"{name}: {message}" if name else message for name, message in fields.items())
    elif isinstance(error, exceptions.APIException):
        status, title, detail, fields = error.status_code, error.default_code, str(error.detail), {}
        title = str(title).replace("_", " ").capitalize()
        if wait := getattr(error, "wait", None):
            headers["Retry-After"] = str(int(wait))
        if challenge := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = challenge
    elif isinstance(error, Http404):
        status, title, detail, fields = 404, "Not found", "There is nothing here for you under this address.", {}
    elif isinstance(error, PermissionDenied):
        status, title, detail, fields = 403, "Not allowed", "You may not do this.", {}
    else:
        return None
    set_rollback()
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if fields:
        body["errors"] = fields
    if request_id := getattr(context.get("request"), "request_id", ""):
        body["request_id"] = request_id
    return Response(body, status=status, headers=headers, content_type="application/problem+json")


def flat(detail: Any, prefix: str = "") -> dict[str, str]:
    """DRF's nested error details as field path → message."""
    if isinstance(detail, dict):
        parts = [flat(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in detail.items()]
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        parts = [flat(value, f"{prefix}[{index}]") for index, value in enumerate(detail) if value]
    else:
        messages = detail if isinstance(detail, list) else [detail]
        name = "" if prefix in {"detail", "non_field_errors"} else prefix
        return {name: " ".join(str(message) for message in messages)}
    return {name: message for part in parts for name, message in part.items()}
