"""System checks of our own."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register


@register(Tags.security, deploy=True)
def metrics_are_guarded(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """/metrics names jobs and costs of every organisation, so it needs a token wherever it can be reached."""
    if settings.METRICS_TOKEN:
        return []
    return [Warning("METRICS_TOKEN is not set: /metrics answers loopback only.", id="agentcore.W001")]
