"""Alerts of an agent's evolutions: by mail when its budget is nearly spent, and as events, each once a month."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db.models import Avg, Count
from django.urls import reverse
from django.utils import timezone

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.money import micros
from agentcore_site.lib.money_format import money
from agentcore_site.lib.months import month_start
from agentcore_site.notices.events import event_record
from agentcore_site.notices.models import SiteEvent
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import admins_of
from budgets.ledger.accounts import month_of
from budgets.models import BudgetSettings
from experiences.agents.evolution_settings import evolution_settings
from experiences.models import Agent, ContextDelta, Evolution
from experiences.playbooks.selectors import evolution_spent_micros

ALERT_AT: Final = 0.75  # of the month's limit
LEAST_SUCCESS: Final = 0.9  # of the ended evolutions
LEAST_CONFIDENCE: Final = 0.6  # mean of the proposed changes
MOST_USD: Final = 1.0  # for one agent and month
MOST_WAITING: Final = 100  # evolutions
LATELY: Final = timedelta(days=30)
ENOUGH: Final = 10  # evolutions or changes that a share or mean is taken of
ALERT: Final = "evolution.alert"


def evolution_alerts(evolution: Evolution) -> None:
    """Call it in the transaction in which an evolution ends."""
    evolution_budget_alert(evolution)
    agent = evolution.agent
    for kind, text in _found(agent).items():
        path = reverse("experiences:playbook", args=[agent.pk])
        _once_a_month(agent.organization_id, kind, text, path=path, agent=agent)


def evolution_queue_alert(agent: Agent) -> None:
    """Call it in the transaction in which an evolution is queued."""
    waiting = Job.objects.filter(organization_id=agent.organization_id, kind="evolution", status=Status.QUEUED).count()
    if waiting > MOST_WAITING:
        text = f"{waiting:,} evolutions wait for a worker: start more workers."
        _once_a_month(agent.organization_id, "queue", text, path=reverse("experiences:playbooks"))


def _found(agent: Agent) -> dict[str, str]:
    """The alerts that hold for an agent, by kind, each a sentence."""
    since = timezone.now() - LATELY
    ended = Evolution.objects.filter(agent=agent, job__created_at__gte=since).order_by()
    counts = dict(ended.values_list("job__status").annotate(n=Count("pk")))
    failed = counts.get(Status.FAILED, 0)
    n = ended.exclude(settled_at=None).count() + failed
    rows = ContextDelta.objects.filter(agent=agent, job__isnull=False, created_at__gte=since)
    proposed = rows.aggregate(n=Count("pk"), mean=Avg("confidence"))
    spent_micros = evolution_spent_micros(agent)
    limit_micros = micros(evolution_settings(agent).monthly_budget_usd)
    found = {}
    if n >= ENOUGH and failed > (1 - LEAST_SUCCESS) * n:
        found["success"] = f"{failed} of {n} evolutions of {agent.name} failed in the last 30 days."
    if proposed["n"] >= ENOUGH and proposed["mean"] < LEAST_CONFIDENCE:
        mean = f"{proposed['mean']:.2f}"
        found["confidence"] = f"Changes proposed for {agent.name} have a mean confidence of {mean} in the last 30 days."
    if spent_micros > micros(MOST_USD):
        found["cost"] = f"Evolutions of {agent.name} have cost {money(spent_micros)} this month."
    if spent_micros > ALERT_AT * limit_micros:
        found["budget"] = (
            f"Evolutions of {agent.name} have spent {money(spent_micros)} of {money(limit_micros)} this month."
        )
    return found


def _once_a_month(organization_id: UUID, kind: str, text: str, *, path: str, agent: Agent | None = None) -> None:
    """Records an alert about an agent, or about all of the organisation's."""
    agent_id, month = None if agent is None else agent.pk, month_start(month_of())
    mine = SiteEvent.objects.filter(organization_id=organization_id, type=ALERT, agent_id=agent_id)
    if not mine.filter(created_at__gte=month, data__alert=kind).exists():
        data = {"alert": kind} | ({} if agent is None else {"agent": agent.slug})
        event_record(organization_id, ALERT, text=text, data=data, path=path, agent_id=agent_id)


def evolution_budget_alert(evolution: Evolution) -> None:
    """Call it in the transaction in which an evolution ends: the one that crosses the mark writes an event, and a mail
    where the organisation's budgets mail their admins."""
    agent = evolution.agent
    limit_micros, spent_micros = micros(evolution_settings(agent).monthly_budget_usd), evolution_spent_micros(agent)
    before_micros = spent_micros - evolution_spent_micros(agent, job_id=evolution.job_id)
    if not before_micros < ALERT_AT * limit_micros <= spent_micros:
        return
    line = (
        f"The evolutions of {agent.name} have spent {spent_micros / limit_micros:.0%} of what they may cost this month:"
        f" {money(spent_micros)} of {money(limit_micros)}"
    )
    event_add(
        evolution.job,
        "warning",
        level="warning",
        message=f"{line}.",
        data={"spent": spent_micros, "limit": limit_micros},
    )
    rules = BudgetSettings.objects.filter(organization_id=agent.organization_id).first() or BudgetSettings()
    if rules.email_admins:
        mail_queue(
            agent.organization,
            to=admins_of(agent.organization).values_list("user__email", flat=True),
            subject=line,
            body=f"{line}.\n\nWhat does not fit any more is refused until the next month begins. The limit is the"
            " agent's own (its form, ace_monthly_budget_usd) within the site's ACE_MONTHLY_BUDGET_USD.\n",
            key=f"evolution budget {agent.pk} {timezone.now():%Y-%m}",
            blind=True,
        )
