"""Outgoing events, publishers, and received events."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Scoped, ScopedManager
from experiences.models import Agent


class EventKind(models.TextChoices):
    """Kinds of outgoing events; each has a subject."""

    TRAJECTORY = "trajectory", "Trajectory"
    REWARD = "reward", "Reward"
    STATUS = "status", "Training status"
    DEPLOYED = "deployed", "Deployment"
    REQUEST = "request", "Training request"
    TRACE = "trace", "Answer in production"
    FEEDBACK = "feedback", "Reward of an answer in production"


class EventPublisher(Scoped):
    """An organisation whose events are published. Without a row its events are not recorded. ``production``: what users
    asked and were answered is published too, with its rewards."""

    organization = models.OneToOneField(
        "tenancy.Organization", on_delete=models.CASCADE, primary_key=True, related_name="event_publisher"
    )
    production = models.BooleanField(
        default=True, help_text="On: answers in production and their rewards are published too."
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return f"events of {self.organization}"


class OutboxEvent(models.Model):
    """An event to publish, written by triggers in the transaction of the event (migrations 0001 and 0008).
    It references its row (``key``, and ``month`` for a row of a partition) and holds no copy of it: the payload is made
    when it is sent. ``data`` holds figures that the row will have lost by then. ``try_after`` is the end of the lease
    of the relay that took it. ``sequence`` is its message's in the stream; ``withheld`` is the reason why a settled
    event was not published.
    """

    id = models.BigAutoField(primary_key=True)
    message_id = models.UUIDField(editable=False)
    organization_id = models.UUIDField()
    kind = models.CharField(max_length=10, choices=EventKind.choices)
    key = models.UUIDField()
    month = models.DateField(null=True)
    data: Any = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    tries = models.PositiveSmallIntegerField(db_default=0)
    try_after = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)
    sequence = models.BigIntegerField(null=True)
    withheld = models.CharField(max_length=60, db_default="")

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["id"], name="outbox_waiting", condition=models.Q(settled_at=None)),
            models.Index(fields=["settled_at"], name="outbox_settled"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.key}"


RECEIVED: Final = "received"  # the purpose of trajectories of agents elsewhere
PUBLISHED_PURPOSES: Final = ("training", RECEIVED)  # never test queries of an agent


class EventCredential(Scoped):
    """A publisher elsewhere: a registered agent, or (without ``agent``) a service of the organisation, which rewards,
    trains and publishes for each of its agents. Only the bcrypt hash of the password is stored."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=80)
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="event_credentials")
    user = models.CharField(max_length=80, unique=True, editable=False)
    digest = models.CharField(max_length=80, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name


class ReceivedTrajectory(Scoped):
    """A trajectory of an agent elsewhere, stored as a row of ``TrajectoryRecord``, once by its own id.
    ``id`` is the row's scenario: each trajectory is a query of its own. ``digest`` is the SHA-256 of the payload,
    ``sequence`` its message's in the stream (null: it did not come by the stream).
    """

    id = models.BigAutoField(primary_key=True)
    trajectory_id = models.CharField(max_length=100)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    credential_id = models.UUIDField(null=True)
    digest = models.CharField(max_length=64)
    sequence = models.BigIntegerField(null=True)
    record_id = models.UUIDField(null=True)
    month = models.DateField(null=True)
    received_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["organization", "trajectory_id"], name="a_trajectory_is_received_once")
        ]

    def __str__(self) -> str:
        return self.trajectory_id


class ReceivedReward(Scoped):
    """A reward of a trajectory from a program elsewhere: received once by its own id, perhaps before its trajectory.
    ``record_id`` is the trajectory's row, once it is known. The first reward of a row without one becomes its reward
    (``applied``); later ones are kept but not applied.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    reward_id = models.CharField(max_length=100)
    trajectory_id = models.CharField(max_length=100)
    credential_id = models.UUIDField(null=True)
    digest = models.CharField(max_length=64)
    sequence = models.BigIntegerField(null=True)
    total = models.FloatField()
    components: Any = models.JSONField(default=dict)
    about: Any = models.JSONField(
        default=dict, help_text="Type, normalisation and evaluator of the reward, as received."
    )
    record_id = models.UUIDField(null=True)
    applied = models.BooleanField(default=False)
    received_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["organization", "reward_id"], name="a_reward_is_received_once")]
        indexes = [
            models.Index(
                fields=["organization", "trajectory_id"], name="rewards_that_wait", condition=models.Q(record_id=None)
            ),
            models.Index(fields=["record_id"], name="rewards_of_trajectory"),
        ]

    def __str__(self) -> str:
        return f"{self.total:g} for {self.trajectory_id}"


class DeadReason(models.TextChoices):
    """Reasons of a refusal of a message."""

    UNREADABLE = "unreadable", "Not JSON, or not storable"
    SCHEMA = "schema", "Does not match its schema"
    UNKNOWN_PUBLISHER = "unknown_publisher", "Unknown organisation or publisher"
    UNKNOWN_AGENT = "unknown_agent", "Unknown agent"
    WRONG_AGENT = "wrong_agent", "The publisher may not publish for this agent"
    NOT_RECORDED = "not_recorded", "The agent may not be recorded"
    CONFLICT = "conflict", "Its id was received with other content"
    REFUSED = "refused", "Refused"
    FAILED = "failed", "It could not be handled"


class DeadLetter(models.Model):
    """A refused message, with the reason; also in the stream of dead letters.
    ``organization`` is null if unknown. ``payload`` is without personal data; "" if it may not be kept.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey("tenancy.Organization", null=True, on_delete=models.CASCADE, related_name="+")
    credential_id = models.UUIDField(null=True)
    subject = models.CharField(max_length=200)
    stream = models.CharField(max_length=40)
    sequence = models.BigIntegerField()
    stored_at = models.DateTimeField()
    reason = models.CharField(max_length=20, choices=DeadReason.choices)
    detail = models.CharField(max_length=300)
    payload = models.TextField(blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    settled_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True)  # taken, dismissed

    objects = ScopedManager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["stream", "sequence", "stored_at"], name="a_message_dies_once")]
        indexes = [models.Index(fields=["organization", "-created_at"], name="dead_letters_of_organization")]

    def __str__(self) -> str:
        return f"{self.stream} {self.sequence}"


class ErasedMessage(models.Model):
    """A message whose content was erased here, but not yet in its stream (migration 0005 records trajectories).
    ``mark`` proves that the message at ``sequence`` is the right one, also in a stream that was made again: its
    ``Nats-Msg-Id``, the SHA-256 of its payload, or the time of its storage. ``sequence`` is null if it was not known
    yet.
    """

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField(null=True)
    stream = models.CharField(max_length=40)
    sequence = models.BigIntegerField(null=True)
    mark = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.stream} {self.sequence}"


class RequestMode(models.TextChoices):
    HERE = "here", "On this site"
    ELSEWHERE = "elsewhere", "By an external training service, over NATS"


class TrainingRequest(Scoped):
    """A training request, and the job that trains or mirrors the training service. ``digest`` is the SHA-256 of its
    payload, ``sequence`` its message's in the stream (null: it did not come by the stream).
    ``request`` is the payload unchanged, ``report`` the latest status of a service elsewhere (``reported_at`` by its
    own clock). ``selected``: number of stored trajectories that match its filter; null without a filter.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    training_job_id = models.CharField(max_length=100)
    digest = models.CharField(max_length=64)
    sequence = models.BigIntegerField(null=True)
    algorithm = models.CharField(max_length=10)
    base_model = models.CharField(max_length=200)
    mode = models.CharField(max_length=10, choices=RequestMode.choices)
    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="training_request")
    agent = models.ForeignKey(Agent, null=True, on_delete=models.CASCADE, related_name="training_requests")
    request: Any = models.JSONField(default=dict)
    report: Any = models.JSONField(default=dict)
    reported_at = models.DateTimeField(null=True)
    selected = models.PositiveIntegerField(null=True)
    cost_micros = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["organization", "training_job_id"], name="a_training_is_requested_once")
        ]

    def __str__(self) -> str:
        return f"{self.algorithm} of {self.base_model}"


class WaitingSpan(Scoped):
    """A span of an incomplete trace: its information about an agent, as JSON, without personal data."""

    id = models.BigAutoField(primary_key=True)
    agent = models.ForeignKey("experiences.Agent", on_delete=models.CASCADE, related_name="+", db_index=False)
    trace_id = models.CharField(max_length=32)
    span_id = models.CharField(max_length=16)
    root = models.BooleanField()
    body = models.TextField()
    received_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["agent", "trace_id", "span_id"], name="a_span_is_taken_once")]

    def __str__(self) -> str:
        return f"span {self.span_id} of {self.trace_id}"


class StoredSpan(Scoped):
    """A span of a trace that was stored as a trajectory, kept for a while: spans that come later make it again."""

    id = models.BigAutoField(primary_key=True)
    agent = models.ForeignKey("experiences.Agent", on_delete=models.CASCADE, related_name="+", db_index=False)
    trace_id = models.CharField(max_length=32)
    span_id = models.CharField(max_length=16)
    root = models.BooleanField()
    body = models.TextField()
    stored_at = models.DateTimeField(db_default=Now(), editable=False, db_index=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["agent", "trace_id", "span_id"], name="a_span_is_stored_once")]

    def __str__(self) -> str:
        return f"span {self.span_id} of {self.trace_id}"
