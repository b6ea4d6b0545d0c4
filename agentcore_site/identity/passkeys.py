"""Passkeys (WebAuthn): made and removed by their person, and what a browser answers with one.

A passkey is bound to the host of ``PUBLIC_URL``: without that setting there are none. Alone it signs a person in, since
it asks who they are by itself (a finger, a PIN); after a password it is the second factor. What is kept is public: an
identifier and a key that only checks signatures.
"""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import orjson
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from fido2.server import Fido2Server
from fido2.utils import websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.codes import code_taken, factor_of, is_required
from agentcore_site.tenancy.models import Passkey
from agentcore_site.tenancy.sign_in import Tries

MOST: Final = 20  # of a person
WAITS_SECONDS: Final = 600
NOT_HERE: Final = (
    "Passkeys are bound to the site's address: its administrator has to set PUBLIC_URL to https and a name first."
)
WRONG: Final = "This passkey was not accepted. Try again, or sign in another way."
# What the library raises for an answer that is none, or not of this ceremony.
REFUSED: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError, NotImplementedError,
                  OverflowError, RecursionError, struct.error)  # fmt: skip

State = dict[str, Any]


def passkeys_are_on() -> bool:
    """Browsers make passkeys for names with HTTPS, and for localhost."""
    parts = urlsplit(settings.PUBLIC_URL)
    host = parts.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and (parts.scheme == "https" or host == "localhost")
    return False


def passkeys_of(user: Any) -> QuerySet[Passkey]:
    return Passkey.objects.filter(user=user).order_by("created_at")


def has_passkey(user: Any) -> bool:
    return passkeys_are_on() and Passkey.objects.filter(user=user).exists()


# -- one's own ---------------------------------------------------------------------------------------------------------


def passkey_begin(actor: Actor) -> tuple[dict[str, Any], State]:
    """(what the browser is asked to make a passkey by, what has to be kept until it answers).

    Raises:
        Forbidden: the actor is a key or a narrowed token.
        Missing: there are no passkeys on this site.
    """
    _check_person(actor)
    options, state = _server().register_begin(
        PublicKeyCredentialUserEntity(
            id=str(actor.user.pk).encode(), name=actor.user.get_username(), display_name=actor.user.get_username()
        ),
        credentials=_keys(passkeys_of(actor.user)),
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return dict(options), _kept(state)


@transaction.atomic
def passkey_add(actor: Actor, state: State | None, *, name: str, answer: str, code: str = "") -> Passkey:
    """The passkey that the browser made. ``code``: of the authenticator, for who has one, so that a session that was
    left open makes no way in of its own.

    Raises:
        Invalid: the answer or the code is wrong, or the name is none.
        Conflict: it is known already, or there are too many.
        TooMany: too many codes were wrong.
    """
    _check_person(actor)
    name = " ".join(name.split())
    if not 0 < len(name) <= 60:
        raise Invalid("Give the passkey a name of at most 60 characters.", fields={"name": "1 to 60 characters."})
    if passkeys_of(actor.user).count() >= MOST:
        raise Conflict(f"You have {MOST} passkeys already. Remove one first.")
    _prove(actor, code)
    try:
        made = _server().register_complete(_living(state), _parsed(answer))
    except REFUSED as error:
        raise Invalid("The browser's answer could not be used. Try again.") from error
    data = made.credential_data
    assert data is not None  # the library has looked
    row = Passkey(
        user=actor.user,
        name=name,
        credential_id=websafe_encode(data.credential_id),
        key=bytes(data),
        sign_count=made.counter,
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Conflict("This passkey is known already.") from None
    record(actor, "passkey.added", row, organization=_home(actor), after={"name": name})
    return row


@transaction.atomic
def passkey_remove(actor: Actor, passkey_id: UUID, *, code: str = "") -> None:
    """Raises:
    Missing: the person has no such passkey.
    Conflict: an organisation asks for a second factor, and there is no other.
    Invalid, TooMany: as ``passkey_add``."""
    _check_person(actor)
    row = passkeys_of(actor.user).filter(pk=passkey_id).first()
    if row is None:
        raise Missing("You have no such passkey.")
    others = passkeys_of(actor.user).exclude(pk=row.pk).exists()
    if is_required(actor.user) and not others and not factor_of(actor.user):
        raise Conflict("Your organisation asks for a second factor. Set up another one first.")
    _prove(actor, code)
    record(actor, "passkey.removed", row, organization=_home(actor), before={"name": row.name})
    row.delete()


def _prove(actor: Actor, code: str) -> None:
    if factor_of(actor.user) is None:
        return
    tries = Tries(actor.name, actor.ip)
    tries.begin()
    if not code_taken(actor.user, code):
        message = "Give the code that your authenticator shows now."
        raise Invalid(message, fields={"code": message})
    tries.succeed()


# -- signing in --------------------------------------------------------------------------------------------------------


def challenge_begin(person: Any = None) -> tuple[dict[str, Any], State]:
    """(what the browser is asked to sign, what has to be kept). ``person``: who gave a right password, and is asked for
    the second factor; without one the passkey says who it is, and has to ask them by itself.

    Raises:
        Missing: there are no passkeys on this site, or the person has none.
    """
    mine = None if person is None else _keys(passkeys_of(person))
    if mine == []:
        raise Missing("You have no passkey here.")
    needed = UserVerificationRequirement.REQUIRED if person is None else UserVerificationRequirement.PREFERRED
    options, state = _server().authenticate_begin(mine, user_verification=needed)
    return dict(options), _kept(state)


def challenge_taken(state: State | None, answer: str, *, person: Any = None) -> Passkey | None:
    """The passkey that signed, once for each challenge; None where the answer is not good. ``person``: whose it has to
    be."""
    rows = Passkey.objects.select_related("user").filter(user__is_active=True)
    rows = rows if person is None else rows.filter(user=person)
    try:
        given = AuthenticationResponse.from_dict(_parsed(answer))
        row = rows.filter(credential_id=websafe_encode(given.raw_id)).first()
        _server().authenticate_complete(_living(state), _keys([row] if row else []), given)
        counter = given.response.authenticator_data.counter
    except REFUSED:
        return None
    assert row is not None  # of none nothing was signed
    # A counter that stays the same or falls: a copy of the passkey was used elsewhere. Many passkeys don't count (0).
    newer = Q(sign_count=0) if counter == 0 else Q(sign_count__lt=counter)
    moved = Passkey.objects.filter(newer, pk=row.pk).update(sign_count=counter, used_at=timezone.now())
    return row if moved else None


# -- shared ------------------------------------------------------------------------------------------------------------


def _server() -> Fido2Server:
    if not passkeys_are_on():
        raise Missing(NOT_HERE)
    host = urlsplit(settings.PUBLIC_URL).hostname
    site = PublicKeyCredentialRpEntity(id=host, name="AgentCore")
    return Fido2Server(site, verify_origin=lambda origin: origin == settings.PUBLIC_URL)


def _keys(rows: Iterable[Passkey]) -> list[AttestedCredentialData]:
    return [AttestedCredentialData(bytes(row.key)) for row in rows]


def _kept(state: Any) -> State:
    return {
        "challenge": state["challenge"],
        "user_verification": str(state["user_verification"].value),
        "at": int(time.time()),
    }


def _living(state: State | None) -> State:
    if not state or time.time() - state["at"] > WAITS_SECONDS:
        raise ValueError("no ceremony waits")
    return {"challenge": state["challenge"], "user_verification": state["user_verification"]}


def _parsed(answer: str) -> dict[str, Any]:
    if len(answer) > 20_000:
        raise ValueError("too long for an answer")
    found = orjson.loads(answer)
    if not isinstance(found, dict):
        raise TypeError("an answer is an object")
    return found


def _check_person(actor: Actor) -> None:
    if actor.scopes is not None:
        raise Forbidden("A key or a narrowed token can't change how its person signs in.")


def _home(actor: Actor) -> Any:
    return next(iter(actor.memberships), None)
