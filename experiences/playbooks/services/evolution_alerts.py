"""Alerts admins, once a month, when three quarters of an agent's monthly budget for evolutions are spent."""

from __future__ import annotations

from typing import Final

from django.utils import timezone

from agentcore_site.jobs.events import event_add
from agentcore_site.lib.money import micros
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import admins_of
from budgets.models import BudgetSettings
from experiences.agents.evolution_settings import evolution_settings
from experiences.models import Evolution
from experiences.playbooks.selectors import evolution_spent_micros

ALERT_AT: Final = 0.75  # of the month's limit


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
