"""Signed POSTs to an address that an organisation chose. Never to a private one: whoever sets a webhook must not
reach through us what only we can reach (``WEBHOOK_PRIVATE`` in the settings allows it where that is meant)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import time
from typing import Any, Final
from uuid import UUID

import httpx
import orjson
from django.conf import settings
from django.utils.crypto import salted_hmac

TIMEOUT: Final = httpx.Timeout(5.0, connect=3.0)  # seconds
SIGNATURE: Final = "X-AgentCore-Signature"


class WebhookFailed(Exception):
    """The webhook did not take it; the message says why and holds no secret."""


def webhook_secret(organization_id: UUID, version: int) -> str:
    """The secret of an organisation's webhook: derived from the site's key, so that none is stored."""
    return salted_hmac("budgets.webhook", f"{organization_id}:{version}", algorithm="sha256").hexdigest()


def signature(secret: str, body: bytes, at: int) -> str:
    """``t=<seconds>,v1=<hex>``: HMAC-SHA256 of ``<seconds>.<body>``; a receiver refuses old ones."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def webhook_post(url: str, payload: dict[str, Any], *, secret: str) -> None:
    """Posts ``payload`` as JSON. The address is looked up once and that very one is called.

    Raises:
        WebhookFailed: a private address, no connection, or an answer that is not 2xx.
    """
    body = orjson.dumps(payload)
    headers = {"Content-Type": "application/json", SIGNATURE: signature(secret, body, int(time.time()))}
    try:
        target = httpx.URL(url)
        address = _address(target.host, target.port or (443 if target.scheme == "https" else 80))
        headers["Host"] = target.netloc.decode("ascii")
        with httpx.Client(timeout=TIMEOUT, trust_env=False, follow_redirects=False) as client:
            answer = client.post(
                target.copy_with(host=address), content=body, headers=headers, extensions={"sni_hostname": target.host}
            )
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise WebhookFailed(f"{type(error).__name__}: {error}"[:200]) from error
    if not answer.is_success:
        raise WebhookFailed(f"It answered {answer.status_code}.")


def _address(host: str, port: int) -> str:
    found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not getattr(settings, "WEBHOOK_PRIVATE", False):
        for one in found:
            if not ipaddress.ip_address(one.partition("%")[0]).is_global:
                raise WebhookFailed(f"{host} is a private address ({one}).")
    return found[0]
