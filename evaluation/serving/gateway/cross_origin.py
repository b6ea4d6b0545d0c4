"""Calls from pages of other sites (CORS): their browsers ask first, and pass an answer on only where it names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings

METHODS: Final = b"GET, POST, OPTIONS"
SHOWN: Final = b"x-agentcore-trace-id, x-agentcore-release, x-agentcore-arm, x-agentcore-left-out, retry-after"


def cross_origin_headers(headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Headers of an answer to a page of an origin in ``GATEWAY_ORIGINS``; none for others."""
    origin = headers.get(b"origin", b"")
    allowed = settings.GATEWAY_ORIGINS
    if not origin or not ("*" in allowed or origin.decode("latin-1").rstrip("/").lower() in allowed):
        return []
    found = [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), (b"access-control-expose-headers", SHOWN)]
    if b"access-control-request-method" in headers:
        found += [
            (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"authorization")),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-max-age", b"600"),
        ]
    return found


def crossing(send: Any, headers: Mapping[bytes, bytes]) -> Any:
    """``send`` with these headers on each answer."""
    if not (ours := cross_origin_headers(headers)):
        return send

    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *ours]}
        await send(message)

    return sent


async def preflight(send: Any) -> None:
    """Answers a browser's question, which has no key."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", METHODS)]})
    await send({"type": "http.response.body", "body": b""})
