"""Sends the audit log to webhooks: sealed lines, in the order of the seals, until they are accepted.

The order is that of seals and not of numbers: transactions end out of order, and a line that appears late has a later
seal. A batch is fixed in its row before it is sent. If the process dies during sending, the next one sends the batch by
the same id: nothing is lost, and a receiver drops duplicates by ``webhook-id``, or by the lines' own ids.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import orjson
from django.db import connection
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.crypto import salted_hmac

from agentcore_site.audit.export_lines import LOG, lines_of
from agentcore_site.audit.services import record
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.outbound.webhooks import WebhookFailed, json_post, standard_headers, standard_secret
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import admins_of

log = logging.getLogger(__name__)

MOST_LINES: Final = 500  # of a batch
MOST_BYTES: Final = 2**19  # of the words in a batch; a single line may exceed it
SEALS_AT_ONCE: Final = 2_000  # that are searched for lines of an organisation
LEASE: Final = timedelta(seconds=15)  # longer than the longest exchange
TURN_SECONDS: Final = 5.0  # of one stream, before the next stream has its turn
LONGEST: Final = timedelta(minutes=5)  # between two attempts
STUCK: Final = timedelta(hours=1)  # of failures, until the admins are notified
NEXT: Final = f"""
    WITH block AS (SELECT id, members FROM audit_seal WHERE kind = '{LOG.name}' AND id >= %(seal)s
        ORDER BY id LIMIT {SEALS_AT_ONCE})
    SELECT block.id, t.number,
        octet_length(coalesce(t.before::text, '')) + octet_length(coalesce(t.after::text, '')) + 600
    FROM block CROSS JOIN LATERAL unnest(block.members) span
    JOIN {LOG.table} t ON t.organization_id = %(organization)s AND t.number >= lower(span) AND t.number < upper(span)
    WHERE (block.id, t.number) > (%(seal)s, %(number)s)
"""  # noqa: S608  (names of our own)


@dataclass(frozen=True)
class AuditBatch:
    """Numbers of lines, in the order of sending, and the position of the last one."""

    id: UUID
    numbers: Sequence[int]
    seal: int
    number: int


def stream_secret(organization_id: UUID, version: int) -> str:
    """Derived from the site's key, so that none is stored."""
    return standard_secret(salted_hmac("audit.stream", f"{organization_id}:{version}", algorithm="sha256").digest())


def streams_send() -> int:
    """Sends due batches, and notifies admins of stuck streams. Returns how many lines were accepted."""
    due = streams_on().filter(try_after__lte=timezone.now()).order_by("try_after")
    sent = sum(map(_send, due.values_list("pk", flat=True)))
    for stream in streams_on().filter(told_at=None, failing_since__lt=timezone.now() - STUCK):
        _notify_admins(stream)
    return sent


def streams_on() -> QuerySet[AuditStream]:
    return AuditStream.objects.filter(paused=False)


def _send(organization_id: UUID) -> int:
    """The turn of one stream. Raises nothing: a bad address must not delay the other streams."""
    sent, ends = 0, time.monotonic() + TURN_SECONDS
    while time.monotonic() < ends:
        taken = batch_send(organization_id)
        if taken is None:
            break
        sent += taken
    return sent


def batch_send(organization_id: UUID) -> int | None:
    """Sends the batch that was begun, or the next one. Returns how many lines were accepted; None if no line waits, the
    attempt failed, or another process is sending."""
    # 1. The process that updates the row may send. If it dies now, the row has the time from which another process may.
    now = timezone.now()
    mine = AuditStream.objects.filter(pk=organization_id)
    if not mine.filter(paused=False, try_after__lte=now).update(try_after=now + LEASE):
        return None
    stream = mine.select_related("organization").first()
    if stream is None:  # it was removed
        return None
    # 2. Content and id are fixed before sending: a second attempt sends the same lines.
    batch = _under_way(stream) if stream.batch_id else _begun(stream)
    if batch is None:
        mine.update(try_after=now)
        return None
    this = mine.filter(batch_id=batch.id)
    try:
        _post(stream, batch)
    except WebhookFailed as error:
        problem = str(error)
    except Exception as error:
        log.exception("the audit log of %s was not sent", organization_id)
        problem = type(error).__name__
    else:
        # 3. If the row names another batch now, another process was sending, or a person restarted the stream.
        done = {"sent_seal": batch.seal, "sent_number": batch.number, "sent_at": timezone.now(), "batch_id": None}
        whole = {"tries": 0, "error": "", "failing_since": None, "told_at": None, "try_after": now}
        taken = len(batch.numbers)
        return taken if this.update(sent_lines=F("sent_lines") + taken, **done, **whole) else None
    again = timezone.now() + min(LONGEST, timedelta(seconds=2 ** min(stream.tries, 16)))
    since = Coalesce("failing_since", now)
    this.update(tries=F("tries") + 1, error=problem[:300], failing_since=since, try_after=again)
    return None


def stream_try(stream: AuditStream) -> None:
    """Posts a message without lines.

    Raises:
        WebhookFailed: the webhook did not accept it; the message says why.
    """
    _signed(stream, uuid4(), "audit.test", [])


def lines_waiting(stream: AuditStream, most: int) -> int:
    """Number of lines that were not accepted yet, ``most`` at most; lines that wait for their seal count too."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) FROM (({NEXT}) UNION ALL (SELECT NULL, t.number, 0 FROM {LOG.table} t"  # noqa: S608
            f"   WHERE t.organization_id = %(organization)s AND t.number >= coalesce((SELECT top FROM audit_seal"
            f"     WHERE kind = '{LOG.name}' ORDER BY id DESC LIMIT 1), 0)) LIMIT {int(most)}) waiting",
            _position(stream),
        )
        return int(cursor.fetchone()[0])


def last_position() -> tuple[int, int]:
    """(seal, number) after the last sealed line."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, top FROM audit_seal WHERE kind = %s ORDER BY id DESC LIMIT 1", [LOG.name])
        return cursor.fetchone() or (0, 0)


def _position(stream: AuditStream) -> dict[str, Any]:
    return {"seal": stream.sent_seal, "number": stream.sent_number, "organization": stream.pk}


def _begun(stream: AuditStream) -> AuditBatch | None:
    """The next batch, now stored in the stream's row; None if no line waits."""
    while True:
        # Read before the lines: a seal that appears in between was not searched.
        last = _last_seal(stream.sent_seal)
        if found := _lines(stream):
            break
        if last == stream.sent_seal:
            return None
        # No line of the organisation is in these seals.
        if not _still(stream).update(sent_seal=last):
            return None
        stream.sent_seal = last
    size, end = 0, (0, 0)
    numbers: list[int] = []
    for seal, number, bytes_ in found:
        if numbers and size + bytes_ > MOST_BYTES:
            break
        size, end = size + bytes_, (seal, number)
        numbers.append(number)
    batch = AuditBatch(uuid4(), numbers, *end)
    begun = _still(stream).update(batch_id=batch.id, batch_seal=batch.seal, batch_number=batch.number)
    return batch if begun else None


def _still(stream: AuditStream) -> QuerySet[AuditStream]:
    """The stream's row, unless another process continued meanwhile or a person restarted the stream."""
    place = {"sent_seal": stream.sent_seal, "sent_number": stream.sent_number}
    return AuditStream.objects.filter(pk=stream.pk, batch_id=None, **place)


def _under_way(stream: AuditStream) -> AuditBatch | None:
    assert stream.batch_id is not None
    end = (stream.batch_seal, stream.batch_number)
    numbers = [number for seal, number, _ in _lines(stream) if (seal, number) <= end]
    return AuditBatch(stream.batch_id, numbers, *end)


def _lines(stream: AuditStream) -> list[tuple[int, int, int]]:
    """(seal, number, bytes) of the next lines. Seals never change, so the beginning is the same at each attempt."""
    with connection.cursor() as cursor:
        cursor.execute(f"{NEXT} ORDER BY 1, 2 LIMIT {MOST_LINES}", _position(stream))
        return list(cursor.fetchall())


def _last_seal(first: int) -> int:
    """The last of the seals that ``NEXT`` searches."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(id), %s) FROM (SELECT id FROM audit_seal WHERE kind = %s AND id >= %s"
            " ORDER BY id LIMIT %s) block",
            [first, LOG.name, first, SEALS_AT_ONCE],
        )
        return int(cursor.fetchone()[0])


def _post(stream: AuditStream, batch: AuditBatch) -> None:
    """Raises WebhookFailed."""
    _signed(stream, batch.id, "audit.lines", [line.rstrip() for line in lines_of(batch.numbers)])


def _signed(stream: AuditStream, id: UUID, type: str, lines: Sequence[bytes]) -> None:
    now = int(time.time())
    head = {"type": type, "timestamp": datetime.fromtimestamp(now, UTC).isoformat()}
    data = orjson.dumps({"batch": id, "organization": stream.organization.slug})
    body = b'%s,"data":%s,"lines":[%s]}}' % (orjson.dumps(head)[:-1], data[:-1], b",".join(lines))
    secret = stream_secret(stream.pk, stream.secret_version)
    json_post(stream.url, body, standard_headers(secret, str(id), now, body))


def _notify_admins(stream: AuditStream) -> None:
    """Notifies the admins once that the webhook accepts nothing, by mail and in the log itself."""
    if not AuditStream.objects.filter(pk=stream.pk, told_at=None).update(told_at=timezone.now()):
        return
    since = f"{stream.failing_since:%Y-%m-%d %H:%M} UTC"
    body = (
        f"The audit log of {stream.organization} has not been taken by its webhook since {since}: {stream.error}\n\n"
        "Nothing is lost: it is tried again every five minutes. See Audit → Webhook.\n"
    )
    subject = f"The audit log of {stream.organization} is not taken by its webhook"
    addresses = admins_of(stream.pk).values_list("user__email", flat=True)
    mail_queue(stream.organization, to=addresses, subject=subject, body=body, blind=True)
    record(None, "audit_stream.stuck", stream, organization=stream.pk, after={"since": since, "error": stream.error})
