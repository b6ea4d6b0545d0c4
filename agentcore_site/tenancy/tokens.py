"""JWTs of people: a family of tokens for each sign-in, which ends with sign-out, a changed password or a stolen token.

Each refresh makes a new refresh token and uses up the one that was sent. A used one that comes again was copied: the
whole family ends (RFC 9700, section 4.14.2). Only within seconds it gets the same successor again: two threads of one
program may refresh at once, and an answer that was lost is asked for again. Each access token names its family, whose
row is read together with its person, so that a token that was ended opens nothing from the next request on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed
from rest_framework_simplejwt.settings import api_settings
from rest_framework_simplejwt.tokens import Token
from rest_framework_simplejwt.utils import datetime_from_epoch, datetime_to_epoch, get_md5_hash_password

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.jwt_keys import RefreshToken
from agentcore_site.tenancy.models import TokenFamily

FAMILY = "family"
SAME_SUCCESSOR: Final = timedelta(seconds=5)
ENDED = "This token was signed out, or its person's password was changed. Sign in again."


def family_start(actor: Actor, scopes: Iterable[str] = (), *, program: str = "") -> dict[str, str]:
    """The first tokens of a sign-in: ``refresh`` and ``access``. ``program``: what it says of itself."""
    token: Any = RefreshToken.for_user(actor.user)
    if wanted := " ".join(scopes):
        token["scope"] = wanted
    with transaction.atomic():
        TokenFamily.objects.filter(user=actor.user, expires_at__lt=timezone.now()).delete()
        row = TokenFamily.objects.create(
            user=actor.user, current=token["jti"], expires_at=_end_of(token), ip=actor.ip, program=program[:300]
        )
        record(actor, "person.signed_in", organization=next(iter(actor.memberships), None))
    token[FAMILY] = str(row.id)
    return _pair(token)


def family_refresh(raw: str, *, ip: str = "") -> dict[str, str]:
    """New tokens for a refresh token, which is used up by that.

    Raises:
        TokenError: it is no refresh token, or too old.
        AuthenticationFailed: its family has ended, or ends now: the token was used up before ``SAME_SUCCESSOR``.
    """
    token: Any = RefreshToken(raw)  # type: ignore[arg-type]
    row = family_of(token)
    used = token["jti"]
    token.set_jti()
    token.set_exp()
    token.set_iat()
    renewed = TokenFamily.objects.filter(id=row.id, current=used, ended_at=None).update(
        current=token["jti"], previous=used, expires_at=_end_of(token), renewed_at=timezone.now(), ip=ip or row.ip
    )
    return _pair(token if renewed else _same_successor(token, row, used))


def _same_successor(token: Any, row: TokenFamily, used: str) -> Any:
    """``token`` as the refresh token that replaced ``used`` a moment ago.

    Raises:
        AuthenticationFailed: it was not a moment ago, and the family ends.
    """
    row.refresh_from_db(fields=["current", "previous", "renewed_at", "expires_at", "ended_at"])
    a_moment_ago = row.renewed_at is not None and timezone.now() - row.renewed_at <= SAME_SUCCESSOR
    if used != row.previous or row.ended_at or not a_moment_ago:
        _end(Actor(row.user, interface="jwt"), row, "person.token_reused")
        raise AuthenticationFailed(ENDED)
    token["jti"], token["exp"] = row.current, datetime_to_epoch(row.expires_at)
    return token


def family_end(raw: str) -> None:
    """Signs out: the family of this refresh token ends, its access tokens with it. One that has ended stays so.

    Raises:
        TokenError: it is no refresh token, or too old.
    """
    try:
        row = family_of(RefreshToken(raw))  # type: ignore[arg-type]
    except AuthenticationFailed:
        return
    _end(Actor(row.user, interface="jwt"), row, "person.signed_out")


def family_of(token: Token) -> TokenFamily:
    """The living family of a token with its person, in one query.

    Raises:
        AuthenticationFailed: it ended, its person is disabled or has another password now.
    """
    key = token.get(FAMILY)
    row = TokenFamily.objects.select_related("user").filter(id=key, ended_at=None).first() if key else None
    if row is None or not row.user.is_active:
        raise AuthenticationFailed(ENDED)
    if token.get(api_settings.REVOKE_TOKEN_CLAIM) != get_md5_hash_password(row.user.password):
        raise AuthenticationFailed(ENDED)
    return row


def sign_out_everywhere(actor: Actor) -> None:
    """Ends every session and every token of a person. API keys stay: they are revoked one by one.

    Raises:
        Forbidden: a key or a narrowed token asks; it may not end more than itself.
    """
    if actor.scopes is not None:
        raise Forbidden("A key or a narrowed token can't sign its person out. Sign in for that.")
    with transaction.atomic():
        families = TokenFamily.objects.filter(user=actor.user, ended_at=None).update(ended_at=timezone.now())
        # A session's person is inside its signed content, so that all have to be looked at: 20 microseconds each.
        living = Session.objects.filter(expire_date__gt=timezone.now()).iterator()
        mine = [row.pk for row in living if row.get_decoded().get("_auth_user_id") == str(actor.user.pk)]
        Session.objects.filter(pk__in=mine).delete()
        after = {"sessions": len(mine), "tokens": families}
        record(actor, "person.signed_out_everywhere", organization=next(iter(actor.memberships), None), after=after)


def _end(actor: Actor, row: TokenFamily, action: str) -> None:
    with transaction.atomic():
        if TokenFamily.objects.filter(id=row.id, ended_at=None).update(ended_at=timezone.now()):
            record(actor, action, organization=next(iter(actor.memberships), None))


def _pair(token: Any) -> dict[str, str]:
    return {"refresh": str(token), "access": str(token.access_token)}


def _end_of(token: Token) -> Any:
    return datetime_from_epoch(token["exp"])
