"""Requests to agents in production and their answers, without personal data."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.encryption.columns import (
    JSON,
    TEXT,
    EncryptedTable,
    SealedJSONField,
    SealedTextField,
    tables,
)
from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models import Agent


class ArmName(models.TextChoices):
    """The arm of the release that answered."""

    NONE = "", "No release"
    CURRENT = "current", "Current"
    NEW = "new", "New"
    SHADOW = "shadow", "Shadow"


class TraceStatus(models.TextChoices):
    OK = "ok", "Answered"
    REFUSED = "refused", "Refused"  # by the model's service or the budget: the caller got their error
    FAILED = "failed", "Failed"
    INTERRUPTED = "interrupted", "Interrupted"  # its process ended before the answer was there


class ProductionTrace(Scoped):
    """One call through the gateway: request, context and answer.
    Content never changes (trigger); ``safety``, ``reward`` and ``components`` are computed later. ``session`` is the
    caller's name for it, "" without one. ``told`` are the handles of the lessons and items in its context. ``request``
    and ``response`` are {} if the agent may not be recorded. Costs are micro-dollars of all attempts.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, null=True, on_delete=models.CASCADE, related_name="production_traces")
    # Plain ids of rows that may be erased while the trace stays.
    release_id = models.UUIDField(null=True)
    deployment_id = models.UUIDField(null=True)
    arm = models.CharField(max_length=8, choices=ArmName.choices, blank=True)
    key = models.CharField(max_length=12, blank=True, help_text="First characters of the consumer's key.")
    key_id = models.UUIDField(null=True)
    session = models.CharField(max_length=120, blank=True)
    metadata: Any = models.JSONField(default=dict, help_text="Metadata of the task from the caller, by name.")
    model = models.CharField(max_length=200)
    endpoint = models.CharField(max_length=80, blank=True)
    streamed = models.BooleanField(default=False)
    request: Any = SealedJSONField(default=dict)
    response: Any = SealedJSONField(default=dict)
    sampled = SealedTextField(
        blank=True, help_text="Packed tokens of the call; empty if the endpoint did not return them."
    )
    told = ArrayField(models.CharField(max_length=40), default=list)
    status = models.CharField(max_length=11, choices=TraceStatus.choices)
    http_status = models.PositiveSmallIntegerField(default=200)
    error = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=40, blank=True)
    temperature = models.FloatField(null=True)
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    hold = models.CharField(max_length=80, blank=True, help_text="Hold in the ledger that paid for the call.")
    duration_ms = models.FloatField(default=0)
    first_token_ms = models.FloatField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    safety = models.PositiveSmallIntegerField(null=True, help_text="Findings in the answer; null: not checked.")
    reward = models.FloatField(null=True)
    components: Any = models.JSONField(default=dict, help_text="Components of the reward, by name.")

    objects: ClassVar[ScopedManager] = ScopedManager(needs="data.view")

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["organization", "-id"], name="production_traces"),
            models.Index(fields=["agent", "-id"], name="production_traces_by_agent"),
            models.Index(fields=["agent", "session", "id"], name="production_traces_by_session"),
            models.Index(fields=["created_at"], name="production_traces_by_age"),
            models.Index(
                fields=["deployment_id"], name="production_traces_deployed", condition=~models.Q(deployment_id=None)
            ),
            models.Index(fields=["id"], name="production_traces_to_score", condition=models.Q(reward=None)),
        ]

    def __str__(self) -> str:
        return f"{self.get_status_display()} at {self.created_at:%Y-%m-%d %H:%M:%S}"

    @property
    def asked(self) -> str:
        """The last message of the user, as a text."""
        return next((text_of(message) for message in reversed(self.messages) if message.get("role") == "user"), "")

    @property
    def answer(self) -> str:
        return text_of(self.response)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the caller sent it, without the gateway's additions."""
        return list(self.request.get("messages", []))


tables.register("production traces")(
    EncryptedTable("serving_productiontrace", {"id": "uuid"}, {"request": JSON, "response": JSON, "sampled": TEXT})
)


class KeySpending(Scoped):
    """Spending of a key in a month (UTC, its first day) on calls through the gateway, without shadows.
    A trigger of ``ProductionTrace`` adds each stored trace, so that a trace that comes twice counts once.
    """

    key_id = models.UUIDField()  # no foreign key: the money was spent, also if the key is deleted before it is counted
    month = models.DateField()
    spent_micros = models.BigIntegerField(db_column="micros")
    calls = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key_id", "month"], name="one_spending_per_key_and_month")]

    def __str__(self) -> str:
        return f"{self.calls:,} calls in {self.month:%Y-%m}"


def text_of(message: Any) -> str:
    """The texts of a message as the OpenAI API writes it; its other parts are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))
    return content or ""
