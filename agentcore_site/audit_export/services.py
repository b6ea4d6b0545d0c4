"""Changes by people of the audit log's webhook and of its starting position."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.audit_export.sending import last_position, stream_try
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.outbound.webhooks import WebhookFailed
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require


def stream_get(actor: Actor, organization: Organization) -> AuditStream:
    """Raises:
    Missing, Forbidden: there is no webhook, or the actor may not see it.
    """
    require(actor, "audit.stream", organization)
    row = AuditStream.objects.visible_to(actor).filter(organization=organization).first()
    if row is None:
        raise Missing("The audit log is sent nowhere: give it an address first.")
    return row  # type: ignore[no-any-return]


@transaction.atomic
def stream_set(actor: Actor, organization: Organization, *, url: str, beginning: bool = True) -> AuditStream:
    """Sets the webhook of the log. ``beginning``: a new webhook receives the log from its first line, else from now on.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the address is malformed, or this site does not call it.
    """
    require(actor, "audit.stream", organization)
    url = url.strip()
    if not 1 <= len(url) <= 500:
        raise Invalid("Give an address of at most 500 characters.", fields={"url": "At most 500 characters."})
    row = AuditStream.objects.filter(organization=organization).first()
    before = {"url": row.url} if row else None
    check_address("url", url, before=row.url if row else "")
    if row is None:
        seal, number = (0, 0) if beginning else last_position()
        place = {"sent_seal": seal, "sent_number": number}
        row = AuditStream.objects.create(organization=organization, url=url, created_by=Actor.of(actor).user, **place)
    else:
        row.url = url
        AuditStream.objects.filter(pk=row.pk).update(url=url, try_after=timezone.now())
    record(actor, "audit_stream.set", row, organization=organization, before=before, after={"url": url})
    return row


@transaction.atomic
def stream_remove(actor: Actor, row: AuditStream) -> None:
    """Removes the webhook: the log is sent no longer."""
    require(actor, "audit.stream", row.organization)
    record(actor, "audit_stream.removed", row, organization=row.pk, before={"url": row.url})
    row.delete()


@transaction.atomic
def stream_pause(actor: Actor, row: AuditStream, *, paused: bool) -> None:
    """Pauses or continues the sending. No line is lost during a pause."""
    require(actor, "audit.stream", row.organization)
    now = timezone.now()
    since = {"failing_since": None, "told_at": None, "error": ""} if paused else {}
    if AuditStream.objects.filter(pk=row.pk, paused=not paused).update(paused=paused, tries=0, try_after=now, **since):
        record(actor, "audit_stream.paused" if paused else "audit_stream.resumed", row, organization=row.pk)


@transaction.atomic
def stream_restart(actor: Actor, row: AuditStream, *, beginning: bool) -> None:
    """Restarts with the first line of all, or with the lines from now on. A batch that is being sent is abandoned."""
    require(actor, "audit.stream", row.organization)
    seal, number = (0, 0) if beginning else last_position()
    AuditStream.objects.filter(pk=row.pk).update(
        sent_seal=seal, sent_number=number, batch_id=None, tries=0, try_after=timezone.now()
    )
    after = {"from": "the beginning" if beginning else "now"}
    record(actor, "audit_stream.restarted", row, organization=row.pk, after=after)


@transaction.atomic
def stream_renew_secret(actor: Actor, row: AuditStream) -> AuditStream:
    """Signs later messages by another secret."""
    require(actor, "audit.stream", row.organization)
    row.secret_version += 1
    row.save(update_fields=["secret_version"])
    record(actor, "audit_stream.secret_made", row, organization=row.pk, after={"version": row.secret_version})
    return row


def stream_test(actor: Actor, row: AuditStream) -> None:
    """Sends a message without lines.

    Raises:
        Conflict: the webhook did not accept it; the message says why.
    """
    require(actor, "audit.stream", row.organization)
    record(actor, "audit_stream.tested", row, organization=row.pk)
    try:
        stream_try(row)
    except WebhookFailed as error:
        raise Conflict(f"The webhook did not take the test: {error}") from None
