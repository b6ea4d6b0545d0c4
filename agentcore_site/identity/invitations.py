"""Invitations: an admin asks by e-mail, and the person becomes a member by accepting, never before.

Whether an address has an account shows in nothing that the admin is answered. The link in the mail is good once and for
seven days; only its digest is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing, TooMany
from agentcore_site.lib.links import absolute_by_socket
from agentcore_site.lib.row_scope import everything, let_in
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import require_members_edit, role_check
from agentcore_site.tenancy.models import Invitation, Membership, Organization, organization_id_of

LIVES: Final = timedelta(days=7)
AGAIN_AFTER: Final = timedelta(minutes=1)
MOST_OPEN: Final = 100  # of an organisation: it is no way to send mails to the world

Link = Callable[[str], str]  # the address of the page for a token


def link_at(request: Any) -> Link:
    """The address of an invitation's page, from outside."""
    return lambda token: absolute_by_socket(request, reverse("invitation", args=[token]))


def invitations_open(actor: Actor, organization: Any) -> QuerySet[Invitation]:
    """Invitations that wait for an answer, newest first; those that came to their end are among them.

    Raises:
        Missing, Forbidden: the actor may not edit members.
    """
    require_members_edit(actor, organization)
    rows = Invitation.objects.filter(organization_id=organization_id_of(organization), outcome="")
    return rows.select_related("invited_by", "organization")


def invitation_get(actor: Actor, organization: Any, key: Any) -> Invitation:
    """Raises:
    Missing: the organisation has no such invitation that waits."""
    mine = Invitation.objects.filter(id=key, organization_id=organization_id_of(organization), outcome="")
    row = invitations_open(actor, organization).filter(id=key).first() if mine.exists() else None
    if row is None:
        raise Missing("There is no such invitation, or it was answered.")
    return row


@transaction.atomic
def invitation_create(
    actor: Actor, organization: Organization, *, email: str, role: str, can_export: bool = False, link: Link
) -> Invitation:
    """Invites the person who reads the mails of an address.

    Raises:
        Invalid: no e-mail address, or no such role.
        Conflict: the address belongs to a member, or has an open invitation.
        TooMany: the organisation has too many open invitations.
    """
    require_members_edit(actor, organization)
    address = _address(email)
    role_check(role)
    if Membership.objects.filter(organization=organization, user__email__iexact=address).exists():
        raise Conflict("A person with this address is a member already.", fields={"email": "A member already."})
    waiting = Invitation.objects.filter(organization=organization, outcome="")
    if waiting.count() >= MOST_OPEN:
        raise TooMany(f"{MOST_OPEN} invitations wait for an answer. Revoke some first.")
    waiting.filter(email=address, expires_at__lte=timezone.now()).update(outcome="expired", ended_at=timezone.now())
    row = Invitation(organization=organization, email=address, role=role, can_export=can_export, invited_by=actor.user)
    try:
        with transaction.atomic():
            _send(row, link)
    except IntegrityError:
        message = "This address has an open invitation. Send that one again, or revoke it."
        raise Conflict(message, fields={"email": message}) from None
    record(actor, "invitation.created", row, after={"email": address, "role": role, "can_export": can_export})
    return row


@transaction.atomic
def invitation_resend(actor: Actor, row: Invitation, *, link: Link) -> None:
    """Sends it again with a new link; the one before opens nothing any more.

    Raises:
        TooMany: it was sent less than a minute ago.
        Conflict: it was answered meanwhile.
    """
    require_members_edit(actor, row.organization_id)
    row = _waiting(row)
    if timezone.now() - row.sent_at < AGAIN_AFTER:
        raise TooMany("It was sent less than a minute ago.", retry_after=int(AGAIN_AFTER.total_seconds()))
    _send(row, link)
    record(actor, "invitation.resent", row)


@transaction.atomic
def invitation_revoke(actor: Actor, row: Invitation) -> None:
    """Takes it back.

    Raises:
        Conflict: it was answered meanwhile.
    """
    require_members_edit(actor, row.organization_id)
    _end(_waiting(row), "revoked")
    record(actor, "invitation.revoked", row)


@everything()
def invitation_of(token: str) -> Invitation:
    """The invitation of a link.

    Raises:
        Missing: it was answered, sent again, revoked, is too old, or never was.
    """
    rows = Invitation.objects.filter(digest=_digest(token), outcome="", expires_at__gt=timezone.now())
    row = rows.select_related("organization", "invited_by").first()
    if row is None:
        raise Missing("This invitation was answered, revoked or is too old. Ask for a new one.")
    let_in(row.organization_id)
    return row


@transaction.atomic
def invitation_accept(actor: Actor, token: str) -> Membership:
    """Makes the person who is signed in a member.

    Raises:
        Missing: the link opens nothing (any more).
        Forbidden: the person's account has another address.
        Conflict: the person is a member already.
    """
    row = _waiting(invitation_of(token))
    if actor.user.email.casefold() != row.email.casefold():
        raise Forbidden("This invitation is for another address than your account's. Sign out, then open it again.")
    member, made = Membership.objects.get_or_create(
        organization=row.organization, user=actor.user, defaults={"role": row.role, "can_export": row.can_export}
    )
    if not made:
        raise Conflict("You are a member of this organisation already.")
    _end(row, "accepted")
    record(actor, "invitation.accepted", row, after={"role": row.role, "can_export": row.can_export})
    record(actor, "membership.created", member, after={"role": row.role, "can_export": row.can_export})
    return member


@transaction.atomic
def invitation_accept_new(token: str, password: str, *, ip: str = "") -> Any:
    """Makes an account whose name is the invited address, and accepts by it. Returns the person.

    Raises:
        Missing: the link opens nothing (any more).
        Invalid: the password is too weak.
        Conflict: an account has this address; its person signs in to accept.
    """
    row = _waiting(invitation_of(token))
    people = get_user_model()
    if people.objects.filter(email__iexact=row.email).exists() or people.objects.filter(username=row.email).exists():
        raise Conflict("You have an account with this address. Sign in with it to accept.")
    person = people(username=row.email, email=row.email)
    try:
        validate_password(password, person)
    except ValidationError as error:
        raise Invalid(" ".join(error.messages), fields={"password": " ".join(error.messages)}) from error
    person.set_password(password)
    person.save()
    actor = Actor(person, ip=ip, interface="console")
    record(actor, "user.created", person, organization=row.organization_id)
    invitation_accept(actor, token)
    return person


@transaction.atomic
def invitation_decline(token: str, *, ip: str = "") -> None:
    """Raises:
    Missing: the link opens nothing (any more)."""
    row = _waiting(invitation_of(token))
    _end(row, "declined")
    record(Actor(None, ip=ip, interface="console"), "invitation.declined", row)


def _send(row: Invitation, link: Link) -> None:
    token = secrets.token_urlsafe(32)
    row.digest, row.sent_at, row.expires_at = _digest(token), timezone.now(), timezone.now() + LIVES
    row.save()
    role, place = row.get_role_display().lower(), row.organization.name
    inviter = getattr(row.invited_by, "username", "") or "An admin"
    body = (
        f"{inviter} invites you to {place} on AgentCore, as {role}.\n\n"
        f"Accept or decline here, within {LIVES.days} days:\n{link(token)}\n\n"
        "If you don't know what this is about, ignore it: nothing happens without your consent.\n"
    )
    mail_queue(row.organization, to=[row.email], subject=f"Invitation to {place}", body=body)


def _waiting(row: Invitation) -> Invitation:
    """The row, locked: two answers at once are one answer."""
    rows = Invitation.objects.select_for_update(of=("self",), no_key=True).filter(pk=row.pk, outcome="")
    found = rows.select_related("organization", "invited_by").first()
    if found is None or found.digest != row.digest:
        raise Conflict("This invitation was answered meanwhile.")
    return found


def _end(row: Invitation, outcome: str) -> None:
    row.outcome, row.ended_at = outcome, timezone.now()
    row.save(update_fields=["outcome", "ended_at"])


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _address(text: str) -> str:
    address = text.strip().lower()
    try:
        validate_email(address)
    except ValidationError:
        raise Invalid("This is no e-mail address.", fields={"email": "This is no e-mail address."}) from None
    if len(address) > 150:
        raise Invalid("The address is too long.", fields={"email": "At most 150 characters."})
    return address
