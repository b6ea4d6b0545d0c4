"""Signed POSTs to an address that an organisation chose."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.utils.crypto import salted_hmac

from agentcore_site.outbound import OutboundClient, OutboundError

TIMEOUT_SECONDS: Final = 5.0  # of a whole exchange
CONNECT_SECONDS: Final = 3.0
SIGNATURE: Final = "X-AgentCore-Signature"


class WebhookFailed(Exception):
    """The webhook did not take it; the message says why. It holds no secret, no address, and no part of an answer."""


def webhook_secret(organization_id: UUID, version: int) -> str:
    """The secret of an organisation's webhook: derived from the site's key, so that none is stored."""
    return salted_hmac("budgets.webhook", f"{organization_id}:{version}", algorithm="sha256").hexdigest()


def signature(secret: str, body: bytes, at: int) -> str:
    """``t=<seconds>,v1=<hex>``: HMAC-SHA256 of ``<seconds>.<body>``; a receiver refuses old ones."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def webhook_post(url: str, payload: dict[str, Any], *, secret: str) -> None:
    """Posts ``payload`` as JSON. From code without an event loop.

    Raises:
        WebhookFailed: an address that this site does not call, no connection, or an answer that is not 2xx.
    """
    body = orjson.dumps(payload)
    json_post(url, body, {SIGNATURE: signature(secret, body, int(time.time()))})


def json_post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Posts JSON that the caller signed in ``headers``. From code without an event loop.

    Raises:
        WebhookFailed: as for ``webhook_post``.
    """
    headers = {"Content-Type": "application/json", **headers}
    try:
        status = asyncio.run(_posted(url, headers, body))
    except TimeoutError:
        raise WebhookFailed(f"No answer within {TIMEOUT_SECONDS:g} s.") from None
    except OutboundError as error:
        raise WebhookFailed(str(error)) from None
    if not 200 <= status < 300:
        raise WebhookFailed(f"It answered {status}.")


async def _posted(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer. Raises OutboundError, TimeoutError."""
    async with (
        OutboundClient(connect_s=CONNECT_SECONDS) as client,
        asyncio.timeout(TIMEOUT_SECONDS),
        await client.send("POST", client.target(url), headers=headers, body=body) as response,
    ):
        return response.status
