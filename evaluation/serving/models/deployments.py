"""Models of deployments: the serving release, the one being deployed, and the events on the way."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager
from evaluation.serving.models.releases import Release
from experiences.models import Agent


class DeploymentStrategy(models.TextChoices):
    IMMEDIATE = "immediate", "Immediate: all of the traffic at once"
    BLUE_GREEN = "blue_green", "Blue-green: ready beside the old one, switched by hand, and watched"
    CANARY = "canary", "Canary: more of the traffic by time and evidence"
    SHADOW = "shadow", "Shadow: a copy of the traffic, whose answers are thrown away"


class DeploymentState(models.TextChoices):
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    DONE = "done", "Done"
    ROLLED_BACK = "rolled_back", "Rolled back"
    STOPPED = "stopped", "Stopped"  # before it had anything to take back: a shadow that ended, or another came


LIVE = (DeploymentState.RUNNING, DeploymentState.PAUSED)


class Deployment(Scoped):
    """The deployment of a release.
    ``share`` of the sessions get the new release now, drawn by ``salt`` and their names. ``rule`` decides when it
    advances (``serving.deployments.rules``), ``monitor`` is the evidence so far (``serving.monitoring``), ``verdict``
    the gate's at its begin. ``asked_at``: time since which this stage waits for a person, because its release was not
    shown to be non-inferior in time."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="deployments")
    release = models.ForeignKey(Release, on_delete=models.PROTECT, related_name="deployments")
    previous = models.ForeignKey(Release, null=True, on_delete=models.PROTECT, related_name="+")
    strategy = models.CharField(max_length=10, choices=DeploymentStrategy.choices)
    state = models.CharField(max_length=11, choices=DeploymentState.choices, default=DeploymentState.RUNNING)
    share = models.FloatField(default=0.0)
    step = models.PositiveSmallIntegerField(default=0)
    step_began_at = models.DateTimeField(default=timezone.now)
    asked_at = models.DateTimeField(null=True, editable=False)
    salt = models.UUIDField(default=uuid4, editable=False)
    rule: Any = models.JSONField(default=dict)
    monitor: Any = models.JSONField(default=dict, editable=False)
    verdict: Any = models.JSONField(default=dict, editable=False)
    note = models.CharField(max_length=300, blank=True)
    reason = models.CharField(max_length=300, blank=True, help_text="Reason for the end of the deployment.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent"], condition=models.Q(state__in=["running", "paused"]), name="one_live_deployment"
            ),
            models.CheckConstraint(
                name="deployment_share_is_a_share", condition=models.Q(share__gte=0) & models.Q(share__lte=1)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_strategy_display().partition(':')[0]} of {self.release}"

    @property
    def live(self) -> bool:
        return self.state in LIVE


class DeploymentEvent(models.Model):
    """A line of a deployment's timeline. Lines are added, never changed."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=12)  # started, advanced, paused, resumed, overridden, alarm, rolled back, done …
    share = models.FloatField()
    # Null: the deployment's own rule.
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    note = models.CharField(max_length=300, blank=True)
    figures: Any = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager("deployment__organization")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:%Y-%m-%d %H:%M:%S}"


class PlanDelivery(models.Model):
    """A change of the serving releases that the agent's webhook has to receive; written in the transaction of the
    change. It holds no plan: the delivery sends the plan of its time, so that a late one sends nothing outdated.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="deliveries")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    tries = models.PositiveSmallIntegerField(default=0)
    try_after = models.DateTimeField(default=timezone.now)
    settled_at = models.DateTimeField(null=True)  # delivered, or nothing left to deliver

    objects = ScopedManager("deployment__organization")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["try_after"], name="plans_to_tell", condition=models.Q(settled_at=None))]

    def __str__(self) -> str:
        return f"{self.tries} tries since {self.created_at:%Y-%m-%d %H:%M:%S}"


class CanaryObservation(models.Model):
    """A session in a deployment: the result of its first request, and its draw. Later requests are in the same arm by
    the same draw, so the evidence adds a session once for each of its guardrails, at four moments.

    ``share`` is the probability with which it was given the new release. ``counted_at``: failure, safety, cost and
    latency of its first request, when that is over; ``reward_counted_at``: that one's reward, once it is worked out;
    ``session_counted_at``: the mean reward of the session, at its first feedback, or when there was time for one;
    ``settled_at``: all that it came to by then.
    """

    id = models.BigAutoField(primary_key=True)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="observations")
    session = models.CharField(max_length=120)
    trace_id = models.UUIDField()
    new = models.BooleanField()
    share = models.FloatField()
    failed = models.BooleanField()
    safety = models.PositiveSmallIntegerField(null=True)
    cost_micros = models.BigIntegerField()
    duration_ms = models.FloatField()
    at = models.DateTimeField()
    counted_at = models.DateTimeField(null=True)
    reward_counted_at = models.DateTimeField(null=True)
    session_counted_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    objects = ScopedManager("deployment__organization")

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["deployment", "session"], name="a_session_counts_once")]
        indexes = [
            models.Index(
                fields=["deployment", "id"], name="observations_to_count", condition=models.Q(counted_at=None)
            ),
            models.Index(
                fields=["deployment", "at"], name="observations_to_pay", condition=models.Q(reward_counted_at=None)
            ),
            models.Index(
                fields=["deployment", "at", "id"], name="observations_to_settle", condition=models.Q(settled_at=None)
            ),
        ]

    def __str__(self) -> str:
        return f"{'new' if self.new else 'current'}: {'failed' if self.failed else 'answered'}"


class AgentServing(Scoped):
    """The serving settings of an agent.
    ``release`` null: nothing was deployed, and the gateway refuses. The endpoints ``fallbacks`` are called in their
    order if the agent's own does not answer. ``while_away_micros``: spending limit of each process while the database
    is unavailable, in micro-dollars; 0: it answers nothing. ``webhook_url`` receives each change of the serving
    releases; "": none. Edits of at most ``most_edits`` texts go out automatically, as ``edits_by``; null: none does. In
    ``edits_month`` ``edits_out`` of them went out, and ``edits_runs`` are the suite runs that were started for them.
    ``last_erased`` is the highest number of an erased release, which is never used again."""

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, primary_key=True, related_name="serving")
    release = models.ForeignKey(Release, null=True, on_delete=models.PROTECT, related_name="serves")
    fallbacks = ArrayField(models.UUIDField(), default=list, blank=True)
    while_away_micros = models.PositiveBigIntegerField(default=0)
    webhook_url = models.URLField(max_length=500, blank=True)
    gate: Any = models.JSONField(default=dict, help_text="Rule that its releases must pass (serving.gate.verdict).")
    last_erased = models.PositiveIntegerField(default=0, editable=False)
    most_edits = models.PositiveSmallIntegerField(null=True, blank=True)
    edits_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    edits_strategy = models.CharField(
        max_length=10, choices=DeploymentStrategy.choices, default=DeploymentStrategy.CANARY
    )
    edits_a_month = models.PositiveSmallIntegerField(
        default=30, help_text="Maximum number of automatic deployments per month."
    )
    edits_monthly_micros = models.PositiveBigIntegerField(
        default=5_000_000, help_text="Maximum cost of their suites per month."
    )
    edits_month = models.DateField(null=True, editable=False)
    edits_out = models.PositiveIntegerField(default=0, editable=False)
    edits_runs = ArrayField(models.UUIDField(), default=list, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"serving of {self.agent}"
