"""Budgets, reservations, the ledger, limits, prices and alerts. All money is integer micro-dollars.

Balances are written by ``budgets.ledger`` alone. History is append-only, by triggers in the database (see migrations).
"""

from __future__ import annotations

from datetime import date
from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.models import Organization, Scoped, ScopedManager
from budgets.pricing import Price, Tier, TokenRates

# When the period of a total begins: one row for ever.
EVER: Final = date(1970, 1, 1)


class Scope(models.TextChoices):
    """The kind of a budget's owner. A chain is checked and locked in this order."""

    ORGANIZATION = "organization", "Organisation"
    AGENT = "agent", "Agent"
    JOB = "job", "Job"
    PLAYGROUND = "playground", "Playground"


class Period(models.TextChoices):
    MONTH = "month", "Monthly"
    TOTAL = "total", "Total"


class HoldState(models.TextChoices):
    HELD = "held", "Held"
    SETTLED = "settled", "Settled"
    CHARGED = "charged", "Charged: not settled in time"
    REFUNDED = "refunded", "Charged, then settled late"


class EntryKind(models.TextChoices):
    RESERVE = "reserve", "Reserve"
    SETTLE = "settle", "Settle"
    CHARGE = "charge", "Charge"
    REFUND = "refund", "Refund"
    DEBT = "debt", "Debt"
    ADJUST = "adjust", "Adjust"


class Budget(Scoped):
    """An owner's spending and holds in one period. A month is a row of its own, so that no reset can erase spending.

    ``owner_id`` is the id of the organisation, the agent or the job; of the playground one that is derived from the
    organisation's. Every owner has a row, also one without a limit (``limit_micros`` is null), so that all spending can
    be counted. A job's row is a total, all others are monthly. ``debt_micros`` is what calls cost beyond their holds
    and the limit had no room for: while it is not paid, nothing more is reserved. ``minute_level_micros``: what was
    lately spent and held of the organisation's rate (``BudgetSettings.most_per_minute_micros``), which runs off by that
    rate.
    """

    scope = models.CharField(max_length=12, choices=Scope.choices)
    owner_id = models.UUIDField(editable=False)
    agent_id = models.UUIDField(null=True, blank=True, editable=False)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    period = models.CharField(max_length=5, choices=Period.choices)
    period_start = models.DateField(default=EVER)
    limit_micros = models.BigIntegerField(
        "limit", db_column="limit", null=True, blank=True, help_text="Micro-dollars; empty: not limited."
    )
    spent_micros = models.BigIntegerField("spent", db_column="spent", default=0)
    reserved_micros = models.BigIntegerField("reserved", db_column="reserved", default=0)
    debt_micros = models.BigIntegerField("debt", db_column="debt", default=0)
    minute_level_micros = models.BigIntegerField(
        "minute level",
        db_column="minute_level",
        default=0,
        db_default=0,
        editable=False,
        help_text="Micro-dollars of the last minute at ``minute_at``.",
    )
    minute_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-period_start", "-id"]
        indexes = [models.Index(fields=["organization", "scope", "-period_start"], name="budgets_by_organization")]
        constraints = [
            models.UniqueConstraint(
                fields=["owner_id", "organization", "period_start"], name="one_budget_per_owner_and_period"
            ),
            models.CheckConstraint(
                name="never_overspent",
                condition=models.Q(spent_micros__gte=0)
                & models.Q(reserved_micros__gte=0)
                & models.Q(debt_micros__gte=0)
                & (
                    models.Q(limit_micros=None)
                    | models.Q(limit_micros__gte=models.F("spent_micros") + models.F("reserved_micros"))
                ),
            ),
            models.CheckConstraint(
                name="budget_has_its_owner",
                condition=models.Q(scope="organization", owner_id=models.F("organization_id"), job=None, agent_id=None)
                | models.Q(scope="agent", owner_id=models.F("agent_id"), job=None)
                | models.Q(scope="job", owner_id=models.F("job_id"))
                | models.Q(scope="playground", job=None, agent_id=None)
                & ~models.Q(owner_id=models.F("organization_id")),
            ),
            models.CheckConstraint(
                name="budget_has_its_period",
                condition=models.Q(scope="job", period="total", period_start=EVER)
                | (~models.Q(scope="job") & models.Q(period="month", period_start__day=1)),
            ),
        ]

    def __str__(self) -> str:
        when = "in all" if self.period == Period.TOTAL else f"{self.period_start:%B %Y}"
        return f"{self.get_scope_display()} {str(self.owner_id)[-6:]}, {when}"

    @property
    def left_micros(self) -> int | None:
        """Micro-dollars that may still be reserved; None: not limited."""
        taken_micros = self.spent_micros + self.reserved_micros + self.debt_micros
        return None if self.limit_micros is None else max(0, self.limit_micros - taken_micros)

    @property
    def share(self) -> float | None:
        """Spent by limit; None: not limited. A limit of nothing counts as used up."""
        if self.limit_micros is None:
            return None
        return self.spent_micros / self.limit_micros if self.limit_micros else 1.0


class BudgetLimit(Scoped):
    """A standing limit from a moment on: the newest of an owner counts. Append-only, so it is its own history."""

    scope = models.CharField(max_length=12, choices=Scope.choices)
    owner_id = models.UUIDField()
    before_micros = models.BigIntegerField("before", db_column="before", null=True)
    limit_micros = models.BigIntegerField(
        "limit", db_column="limit", null=True, help_text="Micro-dollars; empty: not limited."
    )
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor = models.CharField(max_length=150)
    note = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["owner_id", "-id"], name="limits_by_owner")]
        constraints = [
            models.CheckConstraint(
                name="limit_not_negative", condition=models.Q(limit_micros=None) | models.Q(limit_micros__gte=0)
            )
        ]
        verbose_name = "limit change"

    def __str__(self) -> str:
        return f"{self.get_scope_display()} {str(self.owner_id)[-6:]} since {self.at:%Y-%m-%d}"


class CallTags(models.Model):
    """Owners and purpose of a call. Plain ids, not foreign keys: entries stay when agent or job is deleted.

    ``job_budget_id`` is the job's budget, or the playground's, whose calls have no job.
    """

    organization_id = models.UUIDField()
    agent_id = models.UUIDField(null=True)
    job_id = models.UUIDField(null=True)
    organization_budget_id = models.BigIntegerField(null=True)
    agent_budget_id = models.BigIntegerField(null=True)
    job_budget_id = models.BigIntegerField(null=True)
    purpose = models.CharField(max_length=20, blank=True)
    model = models.CharField(max_length=200, blank=True)
    iteration = models.IntegerField(null=True)
    rollout = models.TextField(blank=True)

    class Meta:
        abstract = True


class Reservation(CallTags):
    """The worst case of one attempt of one call, held in each budget of its chain until it is settled or charged."""

    id = models.BigAutoField(primary_key=True)
    key = models.TextField(unique=True)
    amount_micros = models.BigIntegerField("amount", db_column="amount")
    actual_micros = models.BigIntegerField("actual", db_column="actual", null=True)
    state = models.CharField(max_length=8, choices=HoldState.choices, default=HoldState.HELD)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["expires_at"], name="holds", condition=models.Q(state="held"))]
        constraints = [models.CheckConstraint(name="hold_not_negative", condition=models.Q(amount_micros__gte=0))]

    def __str__(self) -> str:
        return self.key


class LedgerEntry(CallTags):
    """One movement of money, the same in every budget of the chain. Append-only.

    The sums of ``spent_delta_micros``, ``reserved_delta_micros`` and ``debt_delta_micros`` over a budget's entries are
    its balances (``manage.py ledger_check``). ``cost_micros`` is what the call really came to; the sum of
    ``spent_delta_micros + debt_delta_micros`` over any set of entries is what it cost.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=8, choices=EntryKind.choices)
    reservation_id = models.BigIntegerField(null=True)
    spent_delta_micros = models.BigIntegerField("spent delta", db_column="spent_delta", default=0)
    reserved_delta_micros = models.BigIntegerField("reserved delta", db_column="reserved_delta", default=0)
    debt_delta_micros = models.BigIntegerField("debt delta", db_column="debt_delta", default=0)
    cost_micros = models.BigIntegerField("cost", db_column="cost", null=True)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    latency_ms = models.BigIntegerField(default=0)
    source = models.CharField(max_length=12, blank=True)
    estimated = models.BooleanField(default=False)
    error = models.TextField(blank=True)

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "ledger entries"
        indexes = [
            models.Index(fields=["organization_id", "at"], name="ledger_by_organization"),
            models.Index(fields=["job_id", "id"], name="ledger_by_job", condition=models.Q(job_id__isnull=False)),
            models.Index(fields=["agent_id", "at"], name="ledger_by_agent", condition=models.Q(agent_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"


class DayGroup(models.TextChoices):
    """The subject of a day's sums. ``BUDGET``: the organisation's budget that was charged."""

    DAY = "day", "Day"
    MODEL = "model", "Model"
    AGENT = "agent", "Agent"
    JOB = "job", "Job"
    PURPOSE = "purpose", "Purpose"
    BUDGET = "budget", "Budget"


class LedgerDay(models.Model):
    """Sums of an organisation's ledger over one day (UTC) that is over, by ``group`` and ``key``.

    ``key``: the model or purpose, or the id of the agent, job or budget; empty where entries have none, and for a
    day's own sums. Sums of agents are kept apart by ``purpose``. Written by ``budgets.ledger.days`` alone.
    """

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    day = models.DateField()
    group = models.CharField(max_length=8, choices=DayGroup.choices)
    key = models.CharField(max_length=200, blank=True)
    purpose = models.CharField(max_length=20, blank=True)
    cost_micros = models.BigIntegerField("cost", db_column="cost")
    calls = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    estimated = models.BigIntegerField(help_text="Calls whose tokens were estimated.")

    objects = ScopedManager("organization_id")

    class Meta:
        ordering = ["-day", "id"]
        verbose_name = "day of the ledger"
        verbose_name_plural = "days of the ledger"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "group", "day", "key", "purpose"], name="one_sum_per_day_and_key"
            )
        ]
        indexes = [models.Index(fields=["key", "day"], name="days_by_agent", condition=models.Q(group="agent"))]

    def __str__(self) -> str:
        return f"{self.group} {self.key} on {self.day}"


class ModelPrice(models.Model):
    """A model's price from a day on, in micro-dollars per million tokens. Without an organisation it is for all."""

    organization = models.ForeignKey(Organization, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    model = models.CharField(max_length=200)
    valid_from = models.DateField()
    input_micros = models.BigIntegerField(
        "input", db_column="input", help_text="Micro-dollars per million prompt tokens."
    )
    cached_input_micros = models.BigIntegerField(
        "cached input",
        db_column="cached_input",
        null=True,
        blank=True,
        help_text="Micro-dollars per million cached prompt tokens; empty: the price of input.",
    )
    output_micros = models.BigIntegerField(
        "output", db_column="output", help_text="Micro-dollars per million answer tokens, reasoning included."
    )
    per_call_micros = models.BigIntegerField(
        "per call", db_column="per_call", default=0, help_text="Micro-dollars for each call."
    )
    rates = models.JSONField(
        default=dict,
        blank=True,
        help_text="Prices of other kinds of tokens per million, by the names of ``pricing.TokenRates``.",
    )
    tiers = models.JSONField(
        default=list,
        blank=True,
        help_text="Prices of long prompts: objects with above_tokens, input_micros, output_micros and rates.",
    )
    free = models.BooleanField(default=False, help_text="Declared free: calls are counted and cost nothing.")
    source = models.CharField(max_length=200, blank=True)
    by_hand = models.BooleanField(
        default=False, editable=False, help_text="Set by a person: price files do not change this price."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = ScopedManager()

    class Meta:
        ordering = ["model", "-valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "model", "valid_from"], name="one_price_per_day_of_an_organization"
            ),
            models.UniqueConstraint(
                fields=["model", "valid_from"],
                condition=models.Q(organization=None),
                name="one_price_per_day_for_all",
            ),
            models.CheckConstraint(
                name="price_not_negative",
                condition=models.Q(input_micros__gte=0)
                & models.Q(output_micros__gte=0)
                & models.Q(per_call_micros__gte=0)
                & (models.Q(cached_input_micros=None) | models.Q(cached_input_micros__gte=0)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.valid_from}"

    def value(self) -> Price:
        """As the model client knows it."""
        if self.free:
            return Price(self.model, 0, 0, 0, 0)
        return Price(
            self.model,
            self.input_micros,
            self.output_micros,
            self.cached_input_micros,
            self.per_call_micros,
            TokenRates(**self.rates),
            tuple(map(Tier.of_row, self.tiers)),
        )


class BudgetSettings(models.Model):
    """Destinations of an organisation's alerts, beside the console, and its rate of spending."""

    organization = models.OneToOneField(Organization, on_delete=models.CASCADE, related_name="+", primary_key=True)
    email_admins = models.BooleanField("e-mail the admins", default=True)
    webhook_url = models.URLField(blank=True, max_length=500, help_text="Receives each alert as a signed POST of JSON.")
    secret_version = models.PositiveIntegerField(
        default=1, help_text="A higher number changes the secret that signs the webhook."
    )
    most_per_minute_micros = models.BigIntegerField(
        "most per minute",
        db_column="most_per_minute",
        null=True,
        blank=True,
        help_text="Maximum cost of calls per minute, in micro-dollars; empty: not limited.",
    )

    objects = ScopedManager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="rate_positive",
                condition=models.Q(most_per_minute_micros=None) | models.Q(most_per_minute_micros__gt=0),
            )
        ]
        verbose_name = "budget settings"
        verbose_name_plural = "budget settings"

    def __str__(self) -> str:
        return str(self.organization)


class AlertKind(models.TextChoices):
    THRESHOLD = "threshold", "A share of the limit is spent"
    ABOVE_HOLD = "above_hold", "A call cost more than was held for it"


class BudgetAlert(models.Model):
    """An alert of a budget for its admins. Raised once a period for each limit, so again under a raised limit.
    Delivered by e-mail and webhook, with retries."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=10, choices=AlertKind.choices, default=AlertKind.THRESHOLD)
    threshold = models.PositiveSmallIntegerField(
        default=0, help_text="Per cent of the limit: 75, 90 or 100; 0 for other kinds."
    )
    limit_micros = models.BigIntegerField("limit", db_column="limit", help_text="Micro-dollars; 0 where there is none.")
    spent_micros = models.BigIntegerField("spent", db_column="spent")
    excess_micros = models.BigIntegerField(
        "excess", db_column="excess", default=0, help_text="Micro-dollars of the bill above its hold."
    )
    created_at = models.DateTimeField(default=timezone.now)
    tries = models.PositiveSmallIntegerField(default=0)
    try_after = models.DateTimeField(default=timezone.now)
    mailed_at = models.DateTimeField(null=True)
    posted_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)

    objects = ScopedManager("budget__organization")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["budget", "kind", "threshold", "limit_micros"], name="one_alert_per_budget_threshold_and_limit"
            )
        ]
        indexes = [models.Index(fields=["try_after"], name="alerts_to_deliver", condition=models.Q(delivered_at=None))]

    def __str__(self) -> str:
        return f"{self.threshold} % of {self.budget}" if self.threshold else f"{self.get_kind_display()}, {self.budget}"
