"""Events, their receivers, and the outcomes of deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.lib.links import placed
from agentcore_site.notices.catalogue import BELL, EVENT_TYPES
from agentcore_site.tenancy.models import Scoped
from agentcore_site.vault import opened

MOST_TYPES: Final = 40  # characters of a type's name


class SiteEvent(Scoped):
    """Something that happened, written in the transaction in which it did. It is the outbox: nothing is delivered
    before ``spread_at``, when a worker made the deliveries.

    ``owner``: the person whom it concerns first. ``path``: of the page about it. ``text``: one sentence.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    type = models.CharField(max_length=MOST_TYPES, editable=False)
    text = models.CharField(max_length=300, editable=False)
    path = models.CharField(max_length=300, blank=True, editable=False)
    data = models.JSONField(default=dict, editable=False)
    agent_id = models.UUIDField(null=True, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    spread_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["id"], name="events_to_spread", condition=models.Q(spread_at=None)),
            models.Index(fields=["organization", "created_at"], name="events_of_organization"),
        ]

    def __str__(self) -> str:
        return f"{self.type}: {self.text}"

    @property
    def address(self) -> str:
        """That of the page, for links of the console."""
        return placed(self.path)

    @property
    def title(self) -> str:
        known = EVENT_TYPES.get(self.type)
        return known.title if known else self.type


class EndpointFormat(models.TextChoices):
    """Formats of messages to an endpoint. The chat formats carry a sentence and a link, and no signature."""

    STANDARD = "standard", "Signed events (Standard Webhooks)"
    SLACK = "slack", "Chat: Slack, Mattermost"
    TEAMS = "teams", "Chat: Microsoft Teams"


class WebhookEndpoint(Scoped):
    """An address that receives events: an organisation's, or where ``user`` is set that person's own.

    ``types``: of which events; none: of all. ``sealed_url``: the whole address where it is itself a secret, as those of
    chats are; then ``url`` is what may be shown of it. ``sealed_former`` signs beside ``sealed_secret`` until
    ``former_until``, so that a receiver can change over.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+", editable=False
    )
    name = models.CharField(max_length=80)
    format = models.CharField(max_length=10, choices=EndpointFormat.choices, default=EndpointFormat.STANDARD)
    url = models.CharField(max_length=500)
    sealed_url = models.TextField(blank=True, editable=False)
    types = ArrayField(models.CharField(max_length=MOST_TYPES), default=list, blank=True)
    on = models.BooleanField(default=True)
    sealed_secret = models.TextField(editable=False)
    sealed_former = models.TextField(blank=True, editable=False)
    former_until = models.DateTimeField(null=True, editable=False)
    failing_since = models.DateTimeField(null=True, editable=False)
    off_reason = models.CharField(max_length=300, blank=True, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "user", "name"], name="one_webhook_of_a_name", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """The address to call. Raises Unsealable."""
        return opened(self.sealed_url) or self.url

    def secrets(self, now: datetime) -> list[str]:
        """The secrets that sign now, the newest first. Raises Unsealable."""
        former = self.sealed_former if self.former_until and now < self.former_until else ""
        return [opened(one) for one in (self.sealed_secret, former) if one]


class WebhookDelivery(Scoped):
    """One event for one endpoint. It waits until it was taken or given up; one attempt at a time holds it, until
    ``try_after``."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(SiteEvent, on_delete=models.CASCADE, related_name="deliveries")
    tries = models.PositiveSmallIntegerField(default=0)
    try_after = models.DateTimeField(default=timezone.now)
    taken_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        verbose_name_plural = "webhook deliveries"
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "event"], name="one_delivery_per_endpoint_and_event")
        ]
        indexes = [
            models.Index(
                fields=["try_after"],
                name="deliveries_to_make",
                condition=models.Q(taken_at=None, given_up_at=None),
            )
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.endpoint_id}"

    @property
    def waits(self) -> bool:
        return self.taken_at is None and self.given_up_at is None


class WebhookAttempt(Scoped):
    """One try of a delivery. ``status``: of HTTP; null where none came. ``answer``: how it begins, of an
    organisation's own endpoint and only of text or JSON."""

    delivery = models.ForeignKey(WebhookDelivery, on_delete=models.CASCADE, related_name="attempts")
    at = models.DateTimeField(default=timezone.now)
    status = models.PositiveSmallIntegerField(null=True)
    duration_ms = models.PositiveIntegerField()
    answer = models.CharField(max_length=300, blank=True)
    error = models.CharField(max_length=300, blank=True)
    next_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.status or self.error} after {self.duration_ms} ms"


class Notice(Scoped):
    """An event in one person's list."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", editable=False)
    event = models.ForeignKey(SiteEvent, on_delete=models.CASCADE, related_name="notices", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    read_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["user", "event"], name="one_notice_per_person_and_event")]
        indexes = [
            models.Index(fields=["user", "organization"], name="notices_unread", condition=models.Q(read_at=None))
        ]

    def __str__(self) -> str:
        return str(self.event)


class Whose(models.TextChoices):
    OWN = "own", "Mine only"
    AGENTS = "agents", "Mine, and those of the agents that I chose"
    ALL = "all", "Everything of the organisation"


def bell_types() -> list[str]:
    return list(BELL)


class NoticePreferences(Scoped):
    """A member's notification settings. Without a row: their own events, by the bell.

    ``mail``: of which types mails are sent, at once or, with ``mail_in_digest``, in the weekly digest. ``digest_week``:
    the week (year and number, ISO 8601) of the last digest, in the person's time zone.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", editable=False)
    whose = models.CharField(max_length=10, choices=Whose.choices, default=Whose.OWN)
    agents = ArrayField(models.UUIDField(), default=list, blank=True)
    bell = ArrayField(models.CharField(max_length=MOST_TYPES), default=bell_types, blank=True)
    mail = ArrayField(models.CharField(max_length=MOST_TYPES), default=list, blank=True)
    mail_in_digest = models.BooleanField(default=False)
    digest = models.BooleanField(default=False)
    digest_week = models.CharField(max_length=10, blank=True, editable=False)
    time_zone = models.CharField(max_length=40, default="UTC")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "user"], name="one_preference_per_member")]
        verbose_name_plural = "notice preferences"

    def __str__(self) -> str:
        return f"notifications of {self.user_id}"
