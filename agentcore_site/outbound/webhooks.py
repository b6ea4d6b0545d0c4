"""POSTs of JSON to webhooks, and their signature as Standard Webhooks says. Pure.

https://www.standardwebhooks.com: ``webhook-id`` names what is told, at each attempt the same; the signature is
HMAC-SHA256 over ``<id>.<timestamp>.<body>``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from agentcore_site.outbound.client import OutboundClient
from agentcore_site.outbound.errors import OutboundError

TIMEOUT_SECONDS: Final = 5.0  # of a whole exchange
CONNECT_SECONDS: Final = 3.0
PREFIX: Final = "whsec_"


class WebhookFailed(Exception):
    """The webhook did not take it; the message says why. It holds no secret, no address, and no part of an answer."""


def standard_secret(key: bytes) -> str:
    """A key in the form in which receivers' libraries take it."""
    return PREFIX + base64.b64encode(key).decode()


def standard_headers(secret: str, id: str, at: int, body: bytes) -> dict[str, str]:
    """The three headers. ``secret`` is ``whsec_`` and base64; ``at`` in seconds since 1970.

    Raises:
        WebhookFailed: the secret is none.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key or not secret.startswith(PREFIX):
        raise WebhookFailed("The webhook's secret can't be read. Make another.")
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}


def json_post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_SECONDS) -> None:
    """Posts JSON that the caller signed in ``headers``. From code without an event loop.

    Raises:
        WebhookFailed: an address that this site does not call, no connection, or an answer that is not 2xx.
    """
    headers = {"Content-Type": "application/json", **headers}
    try:
        status = asyncio.run(_posted(url, headers, body, timeout_s))
    except TimeoutError:
        raise WebhookFailed(f"No answer within {timeout_s:g} s.") from None
    except OutboundError as error:
        raise WebhookFailed(str(error)) from None
    if not 200 <= status < 300:
        raise WebhookFailed(f"It answered {status}.")


async def _posted(url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> int:
    """The status of the answer. Raises OutboundError, TimeoutError."""
    async with (
        OutboundClient(connect_s=CONNECT_SECONDS) as client,
        asyncio.timeout(timeout_s),
        await client.send("POST", client.target(url), headers=headers, body=body) as response,
    ):
        return response.status
