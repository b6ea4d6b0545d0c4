"""POSTs of JSON to webhooks, and their signature as Standard Webhooks says. Pure.

https://www.standardwebhooks.com: ``webhook-id`` names the message, at each attempt the same; the signature is
HMAC-SHA256 over ``<id>.<timestamp>.<body>``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentcore_site.outbound.client import OutboundClient
from agentcore_site.outbound.errors import OutboundError

TIMEOUT_SECONDS: Final = 5.0  # of a whole exchange
CONNECT_SECONDS: Final = 3.0
PREFIX: Final = "whsec_"
BEGINNING: Final = 200  # bytes of an answer that are read
QUOTED: Final = ("text/plain", "application/json", "application/problem+json")


class WebhookFailed(Exception):
    """The webhook did not take it; the message says why. It holds no secret, no address, and no part of an answer."""


def standard_secret(key: bytes) -> str:
    """A key in the form in which receivers' libraries take it."""
    return PREFIX + base64.b64encode(key).decode()


def standard_headers(secret: str, id: str, at: int, body: bytes, *former: str) -> dict[str, str]:
    """The three headers. ``secret`` is ``whsec_`` and base64, and so are ``former`` ones, which sign beside it while
    receivers change over; ``at`` in seconds since 1970.

    Raises:
        WebhookFailed: a secret is none.
    """
    signatures = " ".join(_signature(one, id, at, body) for one in (secret, *former))
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signatures}


def _signature(secret: str, id: str, at: int, body: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key or not secret.startswith(PREFIX):
        raise WebhookFailed("The webhook's secret can't be read. Make another.")
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


@dataclass(frozen=True)
class WebhookExchange:
    """The outcome of a POST. ``problem``: why it was not taken; "" where it was. ``status``: of HTTP, or None.
    ``answer``: how the body of an answer begins, where that says that it is text or JSON."""

    problem: str
    status: int | None
    duration_ms: int
    answer: bytes = b""


def json_post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_SECONDS) -> None:
    """Posts JSON that the caller signed in ``headers``. From code without an event loop.

    Raises:
        WebhookFailed: an address that this site does not call, no connection, or an answer that is not 2xx.
    """
    done = asyncio.run(_alone(url, body, headers, timeout_s))
    if done.problem:
        raise WebhookFailed(done.problem)


async def _alone(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> WebhookExchange:
    async with OutboundClient(connect_s=CONNECT_SECONDS) as client:
        return await json_exchange(client, url, body, headers, timeout_s=timeout_s)


async def json_exchange(
    client: OutboundClient, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_SECONDS
) -> WebhookExchange:
    """Posts JSON that the caller signed in ``headers``, and says how it went; nothing is raised for what the other side
    does."""
    began = time.monotonic()
    status: int | None = None
    answer = b""
    try:
        async with (
            asyncio.timeout(timeout_s),
            await client.send(
                "POST", client.target(url), headers={"Content-Type": "application/json", **headers}, body=body
            ) as response,
        ):
            status = response.status
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() in QUOTED:
                answer = (await response.read(BEGINNING))[:BEGINNING]
        problem = "" if 200 <= status < 300 else f"It answered {status}."
    except TimeoutError:
        problem = f"No answer within {timeout_s:g} s." if status is None else f"It answered {status}, and then no more."
    except OutboundError as error:
        problem = str(error)
    if status is not None and 200 <= status < 300:
        problem = ""  # it was taken, however its answer ended
    return WebhookExchange(problem, status, round(1000 * (time.monotonic() - began)), answer)
