"""The content of the logs: no secret that lets its reader in, and no stack trace that a stranger can cause at will."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The lines that the handler of the shipped settings writes, at the shipped level."""
    handler, written = logging._handlers["console"], io.StringIO()
    root = logging.getLogger()
    level, stream, added = root.level, handler.stream, handler not in root.handlers
    handler.stream = written
    root.setLevel("INFO")
    if added:
        root.addHandler(handler)
    yield written
    handler.stream = stream
    root.setLevel(level)
    if added:
        root.removeHandler(handler)


TOKEN = "SECRET-of-73-letters"


def test_no_line_holds_a_link_that_signs_in(lines: io.StringIO) -> None:
    log = logging.getLogger("anything")
    log.warning("Not Found: %s", f"/shared/{TOKEN}/")
    log.warning("socket", extra={"request": f"<ASGIRequest: GET '/ws/shared/{TOKEN}?after=0'>"})
    log.info('127.0.0.1 - "WebSocket /ws/shared/%s/" [accepted]', TOKEN)
    log.warning("mail to http://localhost/invitations/%s/ failed", TOKEN)
    try:
        raise RuntimeError(f"/shared/{TOKEN}")
    except RuntimeError:
        log.exception("broken")
    Client().get(f"/shared/{TOKEN}/")
    assert TOKEN not in lines.getvalue() and lines.getvalue().count("[cut]") >= 5
    assert all(json.loads(line) for line in lines.getvalue().splitlines())


@pytest.mark.parametrize("path", ["/", "/api/v1/agents", "/admin/", "/health/live"])
def test_a_foreign_host_is_one_line_without_a_stack_trace(path: str, lines: io.StringIO) -> None:
    assert Client(raise_request_exception=False).get(path, headers={"host": "evil.example"}).status_code in {200, 400}
    assert "Traceback" not in lines.getvalue() and len(lines.getvalue().splitlines()) <= 1


def test_the_servers_own_lines_go_through_the_same_formatter() -> None:
    loggers: dict[str, Any] = settings.LOGGING["loggers"]
    assert loggers["uvicorn.error"]["handlers"] == ["console"] and not loggers["uvicorn.error"]["propagate"]
