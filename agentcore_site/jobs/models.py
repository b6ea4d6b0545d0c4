"""One table for everything that takes longer than a request, and the events of each job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Scoped, ScopedManager


class Status(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


ACTIVE: Final = (Status.QUEUED, Status.RUNNING, Status.PAUSED)
ENDED: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)

SHARE_DAYS: Final = 30

# Allowed transitions of a job. ``lifecycle`` is the only writer, and checks them.
TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.PAUSED, Status.CANCELLED, Status.FAILED}),
    Status.RUNNING: frozenset({Status.PAUSED, Status.COMPLETED, Status.FAILED, Status.CANCELLED}),
    Status.PAUSED: frozenset({Status.QUEUED, Status.CANCELLED, Status.FAILED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.QUEUED}),
    Status.CANCELLED: frozenset(),
}


class Reason(models.TextChoices):
    """The reason for a job's status. A closed list, always shown."""

    NONE = "", ""
    USER = "user", "by a person"
    ALL_ITERATIONS = "all_iterations", "all iterations ran"
    EARLY_STOPPED = "early_stopped", "no further gain on the selection queries"
    EQUAL_REWARDS = "equal_rewards", "attempts at one query were all rewarded alike, so nothing can be learned"
    BUDGET_EXCEEDED = "budget_exceeded", "the budget is used up"
    SPENDING_RATE = "spending_rate", "the organisation's spending limit per minute is reached"
    SPENDS_TOO_FAST = "spends_too_fast", "it spends far more than its calls need"
    WAITING_FOR_LLM = "waiting_for_llm", "waiting for the model's service"
    DISK_FULL = "disk_full", "the disk is nearly full"
    KEY_AWAY = "key_away", "its encryption key can't be had"
    STORAGE_AWAY = "storage_away", "waiting for the object storage"
    LLM_REFUSED = "llm_refused", "the model's service refuses"
    REWARD_TIMEOUT = "reward_timeout", "its reward ran out of time"
    NOT_RECORDED = "not_recorded", "its agent may not be recorded"
    CRASHED = "crashed", "its workers crashed too often"
    ERROR = "error", "an error that trying again does not mend"
    DIVERGED = "diverged", "training diverged"


# Reasons of a pause that may end without a person. A budget gets room as a month begins or its limit is raised.
RESUMING: Final = (
    Reason.WAITING_FOR_LLM,
    Reason.KEY_AWAY,
    Reason.STORAGE_AWAY,
    Reason.SPENDING_RATE,
    Reason.DISK_FULL,
    Reason.BUDGET_EXCEEDED,
)


class Priority(models.IntegerChoices):
    HIGH = 0, "High"
    NORMAL = 3, "Normal"
    LOW = 6, "Low"


class HostProcess(models.Model):
    """A process of the site as the ``manage.py up`` of its host sees it, reported every few seconds. ``place``: the id
    of the ``up``. ``ticked_at``: the time of its last heartbeat; null for a service, which has none."""

    place = models.CharField(max_length=120)
    name = models.CharField(max_length=30)
    host = models.CharField(max_length=100)
    pid = models.PositiveIntegerField(help_text="0 while the process is down.")
    restarts = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()
    ticked_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["host", "name"]
        constraints = [models.UniqueConstraint(fields=["place", "name"], name="one_process_of_a_name_and_place")]

    def __str__(self) -> str:
        return f"{self.name} on {self.host}"


class Job(Scoped):
    """Execution of something long. Its results are in the row of its kind (1-1).

    ``attempt`` is the fencing token: it rises with every claim, and every write of a worker filters on it.
    ``lease_until`` is null while no worker holds the job. ``requested`` is a person's request to the worker that holds
    it. ``exclusive_key`` is a key that only one active job may hold at a time, e.g. ``agent:<id>``.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=30)
    title = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.QUEUED)
    status_reason = models.CharField(max_length=30, choices=Reason.choices, default="", blank=True)
    error = models.TextField(blank=True)
    priority = models.SmallIntegerField(choices=Priority.choices, default=Priority.NORMAL)
    exclusive_key = models.CharField(max_length=80, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    attempt = models.PositiveIntegerField(default=0)
    crashes = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=120, blank=True)
    requested = models.CharField(max_length=10, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)
    nudged_at = models.DateTimeField(null=True, blank=True)
    seq = models.BigIntegerField(default=0)

    progress = models.FloatField(default=0.0, help_text="Share of the work that is done, 0 to 1.")
    worked_ms = models.BigIntegerField(default=0, help_text="Time that workers held the job, in milliseconds.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["organization", "-created_at"], name="jobs_by_organization"),
            models.Index(
                fields=["lease_until"], name="jobs_active", condition=models.Q(status__in=["queued", "running"])
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["exclusive_key"],
                condition=~models.Q(exclusive_key="") & models.Q(status__in=list(ACTIVE)),
                name="one_active_job_per_key",
            )
        ]

    def __str__(self) -> str:
        return self.title or f"{self.kind} {str(self.id)[-6:]}"

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def pausable(self) -> bool:
        """Whether a person's pause changes anything: the job would work, now or later, without a person."""
        return self.active and (self.status != Status.PAUSED or self.status_reason in RESUMING)

    @property
    def stage(self) -> str:
        """The status as pages show it. A request that waits for its worker counts: Cancelling, Pausing."""
        return {"cancel": "Cancelling", "pause": "Pausing"}.get(self.requested) or self.get_status_display()

    @property
    def percent(self) -> float:
        return round(100 * (1.0 if self.status == Status.COMPLETED else self.progress), 2)


class JobEvent(models.Model):
    """One thing that happened to a job. ``seq`` has no gaps and rises in the order of commits."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    at = models.DateTimeField(default=timezone.now)
    type = models.CharField(max_length=40)
    level = models.CharField(max_length=8, default="info")
    message = models.CharField(max_length=300, blank=True)
    data = models.JSONField(default=dict, blank=True)

    objects = ScopedManager("job__organization")

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["job", "seq"], name="events_in_order")]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


def share_end() -> datetime:
    """The default end of a share link: in thirty days."""
    return timezone.now() + timedelta(days=SHARE_DAYS)


class ShareLink(Scoped):
    """A read-only address of one job for people without an account. Only the token's digest is kept."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="share_links")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(default=share_end)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"link to {self.job}"
