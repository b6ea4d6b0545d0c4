"""Signed POSTs to an address that an organisation chose."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any, Final
from uuid import UUID

import orjson
from django.utils.crypto import salted_hmac

from agentcore_site.outbound.webhooks import json_post

SIGNATURE: Final = "X-AgentCore-Signature"


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
        WebhookFailed: as for ``json_post``.
    """
    body = orjson.dumps(payload)
    json_post(url, body, {SIGNATURE: signature(secret, body, int(time.time()))})
