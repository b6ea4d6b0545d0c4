"""A webhook for whatever else serves: the whole plan, signed as Standard Webhooks says.

https://www.standardwebhooks.com: ``webhook-id`` names the change, at each attempt the same; the signature is
HMAC-SHA256 over ``<id>.<timestamp>.<body>``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime
from typing import ClassVar, Final
from uuid import UUID

import orjson
from django.utils.crypto import salted_hmac

from budgets.alerts.webhooks import WebhookFailed, json_post
from serving.adapters.base import AdapterFailed, AdapterTarget, AppliedPlan, DeploymentPlan, ServingAdapter

EVENT: Final = "deployment.changed"
PREFIX: Final = "whsec_"


class ServingWebhook(ServingAdapter):
    title: ClassVar = "A webhook"
    needs_url: ClassVar = True

    def faults(self, plan: DeploymentPlan) -> list[str]:
        return []

    def apply(self, plan: DeploymentPlan, target: AdapterTarget) -> AppliedPlan:
        now = int(time.time())
        sent = {"type": EVENT, "timestamp": datetime.fromtimestamp(now, UTC).isoformat(), "data": plan.as_json()}
        body = orjson.dumps(sent)
        try:
            json_post(target.url, body, signed(target.secret, plan.id, now, body))
        except WebhookFailed as error:
            raise AdapterFailed(f"The webhook of {plan.agent} did not take it: {error}") from None
        return AppliedPlan(f"The webhook of {plan.agent} took it.")


def serving_secret(organization_id: UUID, version: int = 1) -> str:
    """The secret of an organisation's serving webhooks: derived from the site's key, so that none is stored."""
    key = salted_hmac("serving.webhook", f"{organization_id}:{version}", algorithm="sha256").digest()
    return PREFIX + base64.b64encode(key).decode()


def signed(secret: str, id: str, at: int, body: bytes) -> dict[str, str]:
    """The three headers. ``secret`` is ``whsec_`` and base64; ``at`` in seconds since 1970.

    Raises:
        AdapterFailed: the secret is none.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key or not secret.startswith(PREFIX):
        raise AdapterFailed("The webhook's secret can't be read. Make another.")
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}
