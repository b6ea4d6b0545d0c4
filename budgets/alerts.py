"""A budget reached 75, 90 or 100 % of its limit: the ledger notes it once a period, this delivers it (SPEC B4)."""

from __future__ import annotations

import logging
import smtplib
from datetime import timedelta
from typing import Any, Final

from django.core.mail import EmailMessage
from django.db.models import F, QuerySet
from django.utils import timezone

from agentcore_site.tenancy.models import Membership
from agentcore_site.tenancy.roles import Role
from budgets.models import BudgetAlert, BudgetSettings, Period
from budgets.showing import money
from budgets.webhooks import WebhookFailed, webhook_post, webhook_secret

log = logging.getLogger(__name__)

MOST_TRIES: Final = 10  # over about a day
LONGEST: Final = timedelta(hours=6)


def alerts_due() -> QuerySet[BudgetAlert]:
    """What still has to be delivered, oldest first. What failed ten times is left with its reason."""
    rows = BudgetAlert.objects.filter(delivered_at=None, try_after__lte=timezone.now(), tries__lt=MOST_TRIES)
    return rows.select_related("budget", "budget__organization", "budget__job").order_by("created_at")


def alert_deliver(alert: BudgetAlert) -> bool:
    """Sends what of an alert was not sent yet, and says whether all of it is now. Two sweeps send it once."""
    now = timezone.now()
    again = now + min(LONGEST, timedelta(minutes=2**alert.tries))
    mine = BudgetAlert.objects.filter(id=alert.id, delivered_at=None, tries=alert.tries, try_after__lte=now)
    if not mine.update(tries=F("tries") + 1, try_after=again):
        return False  # somebody was first
    where = BudgetSettings.objects.filter(organization_id=alert.budget.organization_id).first() or BudgetSettings(
        organization_id=alert.budget.organization_id
    )
    errors: list[str] = []
    if alert.mailed_at is None and where.email_admins:
        try:
            _mail(alert)
            BudgetAlert.objects.filter(id=alert.id).update(mailed_at=timezone.now())
        except (OSError, smtplib.SMTPException) as error:
            errors.append(f"e-mail: {type(error).__name__}")
    if alert.posted_at is None and where.webhook_url:
        try:
            secret = webhook_secret(alert.budget.organization_id, where.secret_version)
            webhook_post(where.webhook_url, as_sent(alert), secret=secret)
            BudgetAlert.objects.filter(id=alert.id).update(posted_at=timezone.now())
        except WebhookFailed as error:
            errors.append(f"webhook: {error}")
    if errors:
        log.warning("alert %s was not delivered: %s", alert.id, "; ".join(errors))
    BudgetAlert.objects.filter(id=alert.id).update(
        error="; ".join(errors)[:300], delivered_at=None if errors else timezone.now()
    )
    return not errors


def subject(alert: BudgetAlert) -> str:
    """One line, as the mail's subject and the console show it."""
    budget = alert.budget
    whose = {"organization": str(budget.organization), "agent": "an agent", "job": f"job {budget.job}"}[budget.scope]
    used = "used up" if alert.threshold == 100 else f"{alert.threshold} % spent"
    return f"The budget of {whose} is {used}: {money(alert.spent)} of {money(alert.limit)}"


def as_sent(alert: BudgetAlert) -> dict[str, Any]:
    """An alert as the webhook gets it. ``id`` is the same in every try."""
    budget = alert.budget
    return {
        "type": "budget.alert",
        "id": str(alert.id),
        "organization": budget.organization.slug,
        "scope": budget.scope,
        "owner_id": str(budget.owner_id),
        "period_start": None if budget.period == Period.TOTAL else budget.period_start.isoformat(),
        "threshold_percent": alert.threshold,
        "limit_micros": alert.limit,
        "spent_micros": alert.spent,
        "at": alert.created_at.isoformat(),
        "text": subject(alert),
    }


def _mail(alert: BudgetAlert) -> None:
    admins = Membership.objects.filter(
        organization_id=alert.budget.organization_id, role=Role.ADMIN, user__is_active=True
    )
    addresses = sorted({one for one in admins.values_list("user__email", flat=True) if one})
    if not addresses:
        return
    stops = "Calls that do not fit are refused, and jobs pause, until the limit is raised or the period ends."
    line = subject(alert).replace("\n", " ").replace("\r", " ")
    body = f"{line}.\n\n{stops}\nChange the limit under Admin → Budgets.\n"
    # Blind copies: the admins' addresses are their own. One message: a retry never sends it to half of them again.
    EmailMessage(line, body, bcc=addresses).send()
