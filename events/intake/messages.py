"""A message from elsewhere, from its bytes to the rows that it makes or the dead letter that it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.db import transaction

from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.texts import plain
from agentcore_site.tenancy.models import Organization
from events.models import DeadLetter, DeadReason, EventCredential
from events.schemas import fault_of
from events.subjects import Origin, origin_of
from experiences.privacy import redact, redact_value

MOST_KEPT: Final = 200_000  # characters of a dead letter's payload


class NotTaken(Exception):
    """A message that becomes a dead letter. ``keep``: whether its payload may be stored."""

    def __init__(self, reason: DeadReason, detail: str, *, keep: bool = True) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.keep = reason, detail, keep


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """As the stream has it."""

    subject: str
    body: bytes
    stream: str
    sequence: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class Sender:
    """Who published. Without a credential: by a plain subject in our own account, for the site's one organisation."""

    organization: Organization
    credential: EventCredential | None = None

    @property
    def credential_id(self) -> UUID | None:
        return None if self.credential is None else self.credential.pk


Receive = Callable[[Sender, Mapping[str, Any], str], None]
RECEIVERS: Final[dict[str, Receive]] = {}  # by subject; filled by ``events.intake.receivers``


def receives(subject: str) -> Callable[[Receive], Receive]:
    """Registers what takes the payloads of a subject; it is given the sender, the payload and its SHA-256."""

    def registered(receive: Receive) -> Receive:
        RECEIVERS[subject] = receive
        return receive

    return registered


def message_take(message: StoredMessage) -> DeadLetter | None:
    """Commits what a message brings; or that it was not taken, and why.

    Raises:
        OperationalError …: the database is away (``agentcore_site.lib.database.trouble_in``).
    """
    try:
        _take(message.subject, message.body, at=message.stored_at)
    except NotTaken as refused:
        return dead_letter_store(message, refused)
    return None


def dead_letter_store(message: StoredMessage, refused: NotTaken) -> DeadLetter:
    """The one row of a message that was not taken; handled twice, it is the row that is there."""
    organization, credential = _known_origin(message.subject)
    row, _ = DeadLetter.objects.get_or_create(
        stream=message.stream,
        sequence=message.sequence,
        stored_at=message.stored_at,
        defaults={
            "organization_id": organization,
            "credential_id": credential,
            "subject": plain(message.subject)[:200],
            "reason": refused.reason,
            "detail": plain(str(redact(refused.detail)))[:300],
            "payload": _kept(message.body) if refused.keep else "",
        },
    )
    return row


def payload_retake(row: DeadLetter) -> None:
    """Takes the payload of a dead letter once more.

    Raises:
        NotTaken: it is refused again.
    """
    _take(row.subject, row.payload.encode(), at=row.stored_at)


def _take(subject: str, body: bytes, *, at: datetime) -> None:
    try:
        origin = origin_of(subject)
    except ValueError as error:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, str(error)) from error
    sender = _sender(origin, at)
    payload = _payload(body)
    if fault := fault_of(origin.subject, payload):
        raise NotTaken(DeadReason.SCHEMA, fault)
    receive = RECEIVERS.get(origin.subject)
    if receive is None:
        raise NotTaken(DeadReason.REFUSED, f"Nothing here takes {origin.subject}.")
    try:
        with transaction.atomic():
            receive(sender, payload, hashlib.sha256(body).hexdigest())
    except DomainError as error:
        raise NotTaken(DeadReason.REFUSED, error.message) from error


def _payload(body: bytes) -> Any:
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotTaken(DeadReason.UNREADABLE, f"It is not JSON: {error}.") from error
    if reason := unstorable(payload):
        raise NotTaken(DeadReason.UNREADABLE, f"It can't be stored: {reason}.")
    return payload


def _sender(origin: Origin, at: datetime) -> Sender:
    if origin.organization_id is None:
        slug = settings.NATS_ORGANIZATION
        organization = Organization.objects.filter(slug=slug).first() if slug else None
        if organization is None:
            raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "Plain subjects belong to no organisation: NATS_ORGANIZATION.")
        return Sender(organization)
    found = EventCredential.objects.select_related("organization", "agent", "created_by").filter(
        pk=origin.credential_id, organization_id=origin.organization_id
    )
    credential = found.first()
    if credential is None:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "There is no such publisher.", keep=False)
    if credential.revoked_at is not None and credential.revoked_at < at:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "Its publisher was revoked before.", keep=False)
    return Sender(credential.organization, credential)


def _known_origin(subject: str) -> tuple[UUID | None, UUID | None]:
    """The ids that there are: a dead letter belongs to an organisation, if that is known."""
    try:
        origin = origin_of(subject)
    except ValueError:
        return None, None
    if origin.organization_id is None:
        mine = Organization.objects.filter(slug=settings.NATS_ORGANIZATION or None)
    else:
        mine = Organization.objects.filter(pk=origin.organization_id)
    return mine.values_list("pk", flat=True).first(), origin.credential_id


def _kept(body: bytes) -> str:
    """The payload without personal data; as JSON where it is JSON, so that it can be tried again."""
    try:
        value = orjson.loads(body)
        text = orjson.dumps(redact_value(value)).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
        text = redact(body.decode("utf-8", "replace"))
    return plain(text.replace("\\u0000", "\ufffd"))[:MOST_KEPT]
