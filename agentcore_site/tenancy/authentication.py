"""Authentication by API key, JWT or console session. Each gives ``request.user`` an ``actor``."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.exceptions import InvalidToken

from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address, lies_in
from agentcore_site.tenancy.models import ApiKey
from agentcore_site.tenancy.services import KEY_PREFIX, key_digest
from agentcore_site.tenancy.tokens import family_of

log = logging.getLogger(__name__)

USED_EVERY = timedelta(minutes=1)
REFUSED = "This API key is unknown, expired or revoked, or may not be used from your address. Make a new one."


def bearer(header: str) -> str:
    """The token of an ``Authorization: Bearer`` header, or nothing."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@everything()
def living_key(key: str) -> ApiKey | None:
    """The row of a living key of an active person, with the person; it is noted that it was used."""
    # Without an order, which takes as long to compile as the rest: a digest is of one key.
    row = next(iter(ApiKey.objects.filter(digest=key_digest(key)).select_related("user").order_by()), None)
    if row is None or not row.alive or not row.user.is_active:
        return None
    now = timezone.now()
    if row.last_used_at is None or now - row.last_used_at > USED_EVERY:
        ApiKey.objects.filter(id=row.id).update(last_used_at=now)
    return row


def actor_of_key(key: str, *, ip: str) -> Actor | None:
    """The actor behind a living key of an active person; None for any other, and from an address from which the key
    may not be used. ``ip``: "" where it is not known."""
    row = living_key(key)
    if row is None:
        return None
    if row.addresses and not lies_in(ip, row.addresses):
        log.warning("key %s was used from %s, which is none of its addresses", row.prefix, ip or "an unknown address")
        return None
    scopes = frozenset(row.scopes)
    return Actor(row.user, scopes=scopes, organization_id=row.organization_id, ip=ip, interface=f"key {row.prefix}")


def actor_of_token(token: str, *, ip: str) -> Actor | None:
    """The actor behind an API key or a JWT outside of a request of REST (a socket); None where it opens nothing."""
    if token.startswith(KEY_PREFIX):
        return actor_of_key(token, ip=ip)
    try:
        valid = JwtAuthentication().get_validated_token(token.encode())
        return Actor(family_of(valid).user, scopes=scopes_of(valid), ip=ip, interface="jwt")
    except (InvalidToken, AuthenticationFailed):
        return None


def actor_of(request: HttpRequest | Request) -> Actor:
    """The actor of a request that was authenticated in any way."""
    actor = getattr(request, "auth", None)
    if isinstance(actor, Actor):
        return actor
    known = getattr(request, "_actor", None)
    if known is None or known.user is not request.user:
        # One for all of the request: its memberships are read once.
        known = Actor(request.user, ip=client_address(request), interface="console")
        request._actor = known  # type: ignore[union-attr]
    return known


class ApiKeyAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, Actor] | None:
        token = bearer(request.headers.get("Authorization", ""))
        if not token.startswith(KEY_PREFIX):
            return None
        actor = actor_of_key(token, ip=client_address(request))
        if actor is None:
            raise AuthenticationFailed(REFUSED)
        return actor.user, actor

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class JwtAuthentication(JWTAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        return found[0], Actor(found[0], scopes=scopes_of(found[1]), ip=client_address(request), interface="jwt")

    def get_user(self, validated_token: Any) -> Any:
        return family_of(validated_token).user


def scopes_of(token: Any) -> frozenset[str] | None:
    """The scopes that a token was narrowed to; None: it may do what its owner may."""
    claim = token.get("scope")
    return None if claim is None else frozenset(str(claim).split())


class ConsoleSessionAuthentication(SessionAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        found = super().authenticate(request)
        return found and (found[0], Actor(found[0], ip=client_address(request), interface="console"))
