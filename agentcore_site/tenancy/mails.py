"""The outbox: a mail is a row of the transaction that it reports, and is sent later, until it went out.

So no mail is lost where the broker or the mail server is away, and no mail reports a change that was rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.core.mail import EmailMessage
from django.db.models import F, QuerySet
from django.utils import timezone

from agentcore_site.lib.backoff import MOST_TRIES, next_try
from agentcore_site.tenancy.models import Mail, Organization, organization_id_of

log = logging.getLogger(__name__)

AT_ONCE: Final = 50
KEPT: Final = timedelta(days=30)  # what was sent stays in the admin for so long


def mail_queue(
    organization: Organization, *, to: Iterable[str], subject: str, body: str, key: str = "", blind: bool = False
) -> Mail | None:
    """Queues a mail. Call it in the transaction of the change that the mail reports.

    ``key``: a name under which the organisation queues this mail once, however often it is asked for. ``blind``: no
    recipient sees the addresses of the others. None where there is no address, or ``key`` was queued before.
    """
    addresses = sorted({address for address in to if address})
    if not addresses:
        return None
    line = " ".join(subject.split())[:200]
    values = {"recipients": addresses, "subject": line, "body": body, "blind": blind}
    owner = organization_id_of(organization)
    if not key:
        return Mail.objects.create(organization_id=owner, **values)
    mail, created = Mail.objects.get_or_create(organization_id=owner, key=key, defaults=values)
    return mail if created else None


def mails_due() -> QuerySet[Mail]:
    """Mails still to be sent, oldest first. A mail that failed ten times is left with its reason."""
    return Mail.objects.filter(sent_at=None, tries__lt=MOST_TRIES, try_after__lte=timezone.now()).order_by("created_at")


def mails_send() -> int:
    """Sends what is due and returns how many mails went out. Old ones that were sent are deleted."""
    Mail.objects.filter(sent_at__lt=timezone.now() - KEPT).delete()
    return sum(mail_send(mail) for mail in mails_due()[:AT_ONCE])


def mail_send(mail: Mail) -> bool:
    """Sends one mail and says whether it went out. Two who send at once send it once."""
    # 1. The process that moves the row may send it; if it dies now, the row has the time of the next try.
    now = timezone.now()
    again = next_try(now, mail.tries)
    mine = Mail.objects.filter(id=mail.id, sent_at=None, tries=mail.tries, try_after__lte=now)
    if not mine.update(tries=F("tries") + 1, try_after=again):
        return False
    row = Mail.objects.filter(id=mail.id)
    # 2. One message for all: a second try never sends it to half of them again.
    where = {"bcc": mail.recipients} if mail.blind else {"to": mail.recipients}
    try:
        EmailMessage(mail.subject, mail.body, **where).send()
    except Exception as error:  # mail libraries raise many kinds, and one bad address must not hold up the others
        log.warning("mail %s was not sent: %s", mail.id, type(error).__name__)
        row.update(error=f"{type(error).__name__}: {error}"[:300])
        return False
    # 3. Its text may hold a link that lets its reader in. It is sent, so it is not kept.
    row.update(sent_at=timezone.now(), error="", body="")
    return True
