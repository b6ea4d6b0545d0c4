"""A received message: from its bytes to its rows, or to a dead letter."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, UUID

import orjson
from django.conf import settings
from django.db import connection, transaction

from agentcore_site.ids import derived
from agentcore_site.lib.database import trouble_in
from agentcore_site.lib.errors import DomainError, Unavailable
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.texts import plain
from agentcore_site.tenancy.models import Organization
from evaluation.events import metrics
from evaluation.events.models import DeadLetter, DeadReason, EventCredential
from evaluation.events.received import in_turn
from evaluation.events.schemas import fault_of
from evaluation.events.subjects import Origin, Publisher, origin_of
from experiences.models import Agent
from experiences.privacy import redact, redact_value

log = logging.getLogger(__name__)

MOST_KEPT: Final = 200_000  # characters of a dead letter's payload
BYTES_EACH: Final = 20 * 2**10  # of a payload, in the mean of an organisation's dead letters
TRIM: Final = """
DELETE FROM events_deadletter WHERE id IN (
    SELECT kept.id FROM unnest(%s::uuid[]) AS organization, LATERAL (
        SELECT id, row_number() OVER newest AS place, sum(octet_length(payload)) OVER newest AS bytes
        FROM events_deadletter WHERE organization_id IS NOT DISTINCT FROM organization
        WINDOW newest AS (ORDER BY created_at DESC, id DESC)) kept
    WHERE kept.place > %s OR kept.bytes > %s)
"""
DEAD: Final = NAMESPACE_OID  # of the ids of dead letters: the same message has the same one


_untrimmed: dict[UUID | None, int] = {}  # dead letters since the last look, by organisation


class NotTaken(Exception):
    """A message that becomes a dead letter. ``keep``: whether its payload may be stored."""

    def __init__(self, reason: DeadReason, detail: str, *, keep: bool = True) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.keep = reason, detail, keep


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in its stream."""

    subject: str
    body: bytes
    stream: str
    sequence: int
    stored_at: datetime


class MessageStamp(NamedTuple):
    """The SHA-256 of a payload, and its message's sequence in the stream."""

    digest: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Sender:
    """A publisher. Without a credential the message came by a plain subject in our own account, for the site's only
    organisation. ``agents``: the organisation's agents that messages of the same block named, by slug."""

    organization: Organization
    credential: EventCredential | None = None
    agents: dict[str, Agent | None] = field(default_factory=dict, compare=False)

    @property
    def credential_id(self) -> UUID | None:
        return None if self.credential is None else self.credential.pk


Senders = Mapping[Publisher, Sender | None]  # None: there is no such publisher
Outcome = DeadLetter | Exception | None
Receive = Callable[[Sender, Mapping[str, Any], MessageStamp], None]
RECEIVERS: Final[dict[str, Receive]] = {}  # by subject; filled by ``events.intake.receivers``


def receives(subject: str) -> Callable[[Receive], Receive]:
    """Registers the receiver of a subject's payloads; it gets the sender, the payload and the message's stamp."""

    def registered(receive: Receive) -> Receive:
        RECEIVERS[subject] = receive
        return receive

    return registered


@transaction.atomic
def block_take(messages: Sequence[StoredMessage]) -> list[Outcome]:
    """Commits the rows of the messages in one transaction, each message as if in its own.
    Returns for each message None, its dead letter, or a local error after which it may be tried again.

    Raises:
        OperationalError …: the database is unavailable (``agentcore_site.lib.database.trouble_in``); nothing was
        committed.
    """
    senders = _senders(message.subject for message in messages)
    in_turn(sender.organization.pk for sender in senders.values() if sender is not None)
    outcomes = [_outcome(message, senders) for message in messages]
    _dead_letters_store([one for one in outcomes if isinstance(one, DeadLetter)])
    return outcomes


def _outcome(message: StoredMessage, senders: Senders) -> Outcome:
    try:
        _take(message, senders)
    except NotTaken as refused:
        return _dead_letter(message, refused, senders)
    except Exception as error:
        if trouble_in(error) is not None:
            raise
        return error
    return None


def dead_letter_store(message: StoredMessage, refused: NotTaken) -> DeadLetter:
    """The row of a refused message; a second handling returns the existing row."""
    row = _dead_letter(message, refused, _senders([message.subject]))
    _dead_letters_store([row])
    return row


def _dead_letters_store(rows: Sequence[DeadLetter]) -> None:
    """Stores them. An organisation keeps so many, and so many bytes of payloads: its oldest ones go. This process
    looks for them at each twentieth of that number."""
    DeadLetter.objects.bulk_create(rows, ignore_conflicts=True)
    most, due = settings.DEAD_LETTERS_KEPT, []
    for organization, new in Counter(row.organization_id for row in rows).items():
        _untrimmed[organization] = _untrimmed.get(organization, most) + new
        if _untrimmed[organization] > most // 20:
            _untrimmed[organization] = 0
            due.append(organization)
    if not due:
        return
    with connection.cursor() as cursor:
        cursor.execute(TRIM, [due, most, most * BYTES_EACH])
        if dropped := cursor.rowcount:
            metrics.dropped.inc(dropped)
            log.warning("%d dead letters were dropped: newer ones of their organisation took their places", dropped)


def _dead_letter(message: StoredMessage, refused: NotTaken, senders: Senders) -> DeadLetter:
    organization, credential = _known_origin(message.subject, senders)
    return DeadLetter(
        id=derived(DEAD, message.stream, message.sequence, message.stored_at.isoformat()),
        stream=message.stream,
        sequence=message.sequence,
        stored_at=message.stored_at,
        organization_id=organization,
        credential_id=credential,
        subject=plain(message.subject)[:200],
        reason=refused.reason,
        detail=plain(str(redact(refused.detail)))[:300],
        payload=_kept(message.body) if refused.keep else "",
    )


def payload_retake(row: DeadLetter) -> None:
    """Handles the payload of a dead letter again.

    Raises:
        NotTaken: it is refused again.
    """
    senders = _senders([row.subject])
    in_turn(sender.organization.pk for sender in senders.values() if sender is not None)
    _take(StoredMessage(row.subject, row.payload.encode(), row.stream, row.sequence, row.stored_at), senders)


def _senders(subjects: Iterable[str]) -> Senders:
    publishers = set()
    for subject in subjects:
        with suppress(ValueError):
            publishers.add(origin_of(subject).publisher)
    return {publisher: _known_sender(*publisher) for publisher in publishers}


def _take(message: StoredMessage, senders: Senders) -> None:
    body = message.body
    try:
        origin = origin_of(message.subject)
    except ValueError as error:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, str(error)) from error
    sender = _sender(origin, senders[origin.publisher], message.stored_at)
    payload = _payload(body)
    if fault := fault_of(origin.subject, payload):
        raise NotTaken(DeadReason.SCHEMA, fault)
    receive = RECEIVERS.get(origin.subject)
    if receive is None:
        raise NotTaken(DeadReason.REFUSED, f"Nothing here takes {origin.subject}.")
    try:
        with transaction.atomic():
            receive(sender, payload, MessageStamp(hashlib.sha256(body).hexdigest(), message.sequence))
    except Exception as error:
        sender.agents.clear()  # the hold on the consent of agents that this message named first went with the savepoint
        if isinstance(error, DomainError) and not isinstance(error, Unavailable):
            raise NotTaken(DeadReason.REFUSED, error.message) from error
        raise  # a key or a storage is unavailable: not the message's fault


def _payload(body: bytes) -> Any:
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotTaken(DeadReason.UNREADABLE, f"It is not JSON: {error}.") from error
    if reason := unstorable(payload):
        raise NotTaken(DeadReason.UNREADABLE, f"It can't be stored: {reason}.")
    return payload


def _known_sender(organization_id: UUID | None, credential_id: UUID | None) -> Sender | None:
    if organization_id is None:
        slug = settings.NATS_ORGANIZATION
        organization = Organization.objects.filter(slug=slug).first() if slug else None
        return None if organization is None else Sender(organization)
    found = EventCredential.objects.select_related("organization", "agent", "created_by").filter(
        pk=credential_id, organization_id=organization_id
    )
    credential = found.first()
    return None if credential is None else Sender(credential.organization, credential)


def _sender(origin: Origin, sender: Sender | None, at: datetime) -> Sender:
    if sender is None and origin.organization_id is None:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "Plain subjects belong to no organisation: NATS_ORGANIZATION.")
    if sender is None:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "There is no such publisher.", keep=False)
    credential = sender.credential
    if credential is not None and credential.revoked_at is not None and credential.revoked_at < at:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "Its publisher was revoked before.", keep=False)
    return sender


def _known_origin(subject: str, senders: Senders) -> tuple[UUID | None, UUID | None]:
    """The ids of existing rows: a dead letter belongs to its organisation, if that is known."""
    try:
        origin = origin_of(subject)
    except ValueError:
        return None, None
    if (sender := senders.get(origin.publisher)) is not None:
        return sender.organization.pk, origin.credential_id
    if origin.organization_id is None:
        return None, None
    mine = Organization.objects.filter(pk=origin.organization_id)
    return mine.values_list("pk", flat=True).first(), origin.credential_id


def _kept(body: bytes) -> str:
    """The payload without personal data; JSON stays JSON, so that it can be tried again."""
    try:
        value = orjson.loads(body)
        text = orjson.dumps(redact_value(value)).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
        text = redact(body.decode("utf-8", "replace"))
    return plain(text.replace("\\u0000", "\ufffd"))[:MOST_KEPT]
