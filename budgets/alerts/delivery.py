"""A budget reached 75, 90 or 100 % of its limit, or a call cost more than was held for it: the ledger notes it once a
period, this delivers it."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.db import transaction
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils import timezone

from agentcore_site.lib.backoff import MOST_TRIES, next_try
from agentcore_site.lib.links import link_in_mail
from agentcore_site.lib.money_format import money, shares
from agentcore_site.notices.events import event_record
from agentcore_site.outbound.webhooks import WebhookFailed
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import admins_of
from budgets.alerts.pages import limit_page
from budgets.alerts.webhooks import webhook_post, webhook_secret
from budgets.models import AlertKind, BudgetAlert, BudgetSettings, Period, Scope
from budgets.presenters.naming import owner_name

log = logging.getLogger(__name__)
# The fields of an alert that its event holds.
EVENT_FIELDS: Final = (
    "scope",
    "owner_id",
    "owner_name",
    "period_start",
    "threshold_percent",
    "limit_micros",
    "spent_micros",
)


def alerts_due() -> QuerySet[BudgetAlert]:
    """Alerts still to be delivered, oldest first. An alert that failed ten times is left with its reason."""
    rows = BudgetAlert.objects.filter(delivered_at=None, try_after__lte=timezone.now(), tries__lt=MOST_TRIES)
    return rows.select_related("budget", "budget__organization", "budget__job").order_by("created_at")


def alert_deliver(alert: BudgetAlert) -> bool:
    """Sends what of an alert was not sent yet, and says whether all of it is now. Two sweeps send it once."""
    now = timezone.now()
    again = next_try(now, alert.tries)
    mine = BudgetAlert.objects.filter(id=alert.id, delivered_at=None, tries=alert.tries, try_after__lte=now)
    with transaction.atomic():
        if not mine.update(tries=F("tries") + 1, try_after=again):
            return False  # another process was first
        if alert.tries == 0 and alert.kind == AlertKind.THRESHOLD:
            _event(alert)
    where = BudgetSettings.objects.filter(organization_id=alert.budget.organization_id).first() or BudgetSettings(
        organization_id=alert.budget.organization_id
    )
    errors: list[str] = []
    if alert.mailed_at is None and where.email_admins:
        _mail(alert)
    if alert.posted_at is None and where.webhook_url:
        errors += _posted(alert, where)
    if errors:
        log.warning("alert %s was not delivered: %s", alert.id, "; ".join(errors))
    BudgetAlert.objects.filter(id=alert.id).update(
        error="; ".join(errors)[:300], delivered_at=None if errors else timezone.now()
    )
    return not errors


def _event(alert: BudgetAlert) -> None:
    """Records the event for webhooks and bells once, with the first try's claim of the alert."""
    budget = alert.budget
    sent = as_sent(alert)
    event_record(
        budget.organization_id,
        "budget.exceeded" if alert.threshold >= 100 else "budget.threshold",
        text=sent["text"],
        data={name: sent[name] for name in EVENT_FIELDS} | {"budget_id": budget.pk, "how": advice(alert)},
        path=reverse("budgets:budget", args=[budget.pk]),
        agent_id=budget.owner_id if budget.scope == Scope.AGENT else None,
        owner=budget.job.created_by if budget.job else None,
    )


def _posted(alert: BudgetAlert, where: BudgetSettings) -> list[str]:
    """Posts it and notes when, or says why not. Nothing is raised: one bad address must not keep the alerts behind it
    waiting."""
    try:
        _post(alert, where)
    except WebhookFailed as error:
        return [f"webhook: {error}"]
    except Exception as error:
        log.debug("alert %s", alert.id, exc_info=True)
        return [f"webhook: {type(error).__name__}"]
    BudgetAlert.objects.filter(id=alert.id).update(posted_at=timezone.now())
    return []


def subject(alert: BudgetAlert, name: str = "") -> str:
    """One line, as the mail's subject and the console show it. ``name`` is the owner's, if the caller has it."""
    budget = alert.budget
    name = name or owner_name(budget)
    names = {"organization": name, "agent": f"the agent {name}", "job": f"job {name}", "playground": "the playground"}
    whose = names[budget.scope]
    if alert.kind == AlertKind.ABOVE_HOLD:
        return f"A call on the budget of {whose} cost {money(alert.excess_micros)} more than was held for it"
    percent, spent, limit = shares(alert.spent_micros, alert.limit_micros)
    used = f"{percent} % spent"
    if alert.threshold == 100:
        used = "used up" if percent >= 100 else "all but used up"
    return f"The budget of {whose} is {used}: {spent} of {limit}"


def advice(alert: BudgetAlert) -> str:
    """Says what the alert means and what to do, to readers who may change the limit and to others."""
    if alert.kind == AlertKind.ABOVE_HOLD:
        return (
            "The excess is spent or owed and is in the ledger as debt. A provider that bills more than its price"
            " allows has another price than ours, or bills what was not asked for: compare its bill with Budgets →"
            " Prices. This alert is sent once a period."
        )
    if alert.budget.period == Period.TOTAL:
        stops = "Calls that do not fit are refused, and the job pauses. Raise its limit, then resume it."
    elif alert.budget.scope == Scope.PLAYGROUND:
        stops = (
            "Calls of the playground that do not fit are refused until the next month begins, or the limit is raised."
        )
    else:
        stops = (
            "Calls that do not fit are refused, and jobs pause. They go on by themselves when the next month begins,"
            " or once the limit is raised."
        )
    return f"{stops}\nAdmins change the limit on the budget's page."


def as_sent(alert: BudgetAlert) -> dict[str, Any]:
    """An alert as the webhook gets it. ``id`` is the same in every try."""
    budget = alert.budget
    name = owner_name(budget)
    return {
        "type": "budget.alert",
        "kind": alert.kind,
        "id": str(alert.id),
        "organization": budget.organization.slug,
        "scope": budget.scope,
        "owner_id": str(budget.owner_id),
        "owner_name": name,
        "period_start": None if budget.period == Period.TOTAL else budget.period_start.isoformat(),
        "threshold_percent": alert.threshold,
        "limit_micros": alert.limit_micros,
        "spent_micros": alert.spent_micros,
        "excess_micros": alert.excess_micros,
        "at": alert.created_at.isoformat(),
        "text": subject(alert, name),
    }


def _mail(alert: BudgetAlert) -> None:
    """Puts the mail into the outbox, which sends it until it went out. Its readers may change the limit."""
    addresses = admins_of(alert.budget.organization_id).values_list("user__email", flat=True)
    line = subject(alert)
    body = f"{line}.\n\n{advice(alert)}\n\n{link_in_mail(limit_page(alert.budget.pk))}\n"
    # Blind copies: the admins' addresses are their own.
    organization = alert.budget.organization
    mail_queue(organization, to=addresses, subject=line, body=body, key=f"alert {alert.id}", blind=True)
    BudgetAlert.objects.filter(id=alert.id).update(mailed_at=timezone.now())


def _post(alert: BudgetAlert, where: BudgetSettings) -> None:
    secret = webhook_secret(alert.budget.organization_id, where.secret_version)
    webhook_post(where.webhook_url, as_sent(alert), secret=secret)
