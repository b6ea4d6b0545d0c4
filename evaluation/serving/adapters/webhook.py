"""A webhook for other serving systems: receives the whole plan, signed by Standard Webhooks. ``webhook-id`` identifies
the change."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import ClassVar, Final
from uuid import UUID

import orjson
from django.utils.crypto import salted_hmac

from agentcore_site.outbound.webhooks import WebhookFailed, json_post, standard_headers, standard_secret
from evaluation.serving.adapters.base import AdapterFailed, AdapterTarget, AppliedPlan, DeploymentPlan, ServingAdapter

EVENT: Final = "deployment.changed"


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
            json_post(target.url, body, standard_headers(target.secret, plan.id, now, body))
        except WebhookFailed as error:
            raise AdapterFailed(f"The webhook of {plan.agent} did not take it: {error}") from None
        return AppliedPlan(f"The webhook of {plan.agent} took it.")


def serving_secret(organization_id: UUID, version: int = 1) -> str:
    """The secret of an organisation's serving webhooks: derived from the site's key, so that none is stored."""
    key = salted_hmac("serving.webhook", f"{organization_id}:{version}", algorithm="sha256").digest()
    return standard_secret(key)
