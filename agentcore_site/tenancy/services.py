"""Writes of tenancy: API keys."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import networks
from agentcore_site.tenancy.models import ApiKey, Organization
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.tenancy.roles import SCOPES

KEY_PREFIX = "ac_"
MAX_DAYS = 366
MAX_PER_MINUTE = 1_000_000
MAX_MONTHLY = 10**15  # micro-dollars
MOST_ADDRESSES = 50


def key_digest(key: str) -> str:
    # A fast hash is right here: the key is 256 random bits, so there is nothing to guess.
    return hashlib.sha256(key.encode()).hexdigest()


def check_scopes(scopes: Iterable[str]) -> list[str]:
    wanted = sorted({scope.strip() for scope in scopes if scope.strip()})
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        wrong = f"Unknown scope {unknown[0]!r}." if unknown else "A key needs at least one scope."
        raise Invalid(f"{wrong} Scopes: {', '.join(SCOPES)}.", fields={"scopes": wrong})
    return wanted


@transaction.atomic
def api_key_create(
    actor: Actor,
    *,  # the fields of the REST request
    name: str,
    scopes: Iterable[str],
    days: int = 90,
    per_minute: int | None = None,
    monthly_micros: int | None = None,
    addresses: Iterable[str] = (),
    organization: Organization | None = None,
) -> tuple[ApiKey, str]:
    """Makes a key for the actor. Returns the row and the key itself, which is never shown again.

    Raises:
        Forbidden: the actor is a key itself, and may not manage keys or asks for more than it has.
        Invalid: unknown scopes, a life outside 1 to 366 days, or limits or addresses that are none.
    """
    actor = Actor.of(actor)
    wanted = check_scopes(scopes)
    _check_reach(actor, wanted)
    if not 1 <= days <= MAX_DAYS:
        message = f"A key lives between 1 and {MAX_DAYS} days; got {days}."
        raise Invalid(message, fields={"days": message})
    _check_limits(wanted, per_minute, monthly_micros)
    places = _checked_addresses(wanted, addresses)
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    row = ApiKey.objects.create(
        organization=organization or current_organization(actor),
        user=actor.user,
        name=name.strip()[:80] or "key",
        prefix=key[:10],
        digest=key_digest(key),
        scopes=wanted,
        per_minute=per_minute,
        monthly_micros=monthly_micros,
        addresses=places,
        expires_at=timezone.now() + timedelta(days=days),
    )
    limits = {"per_minute": per_minute, "monthly_micros": monthly_micros, "addresses": places or None}
    after = {"scopes": row.scopes, "name": row.name} | {name: most for name, most in limits.items() if most is not None}
    record(actor, "api_key.created", row, organization=row.organization, after=after)
    return row, key


def _check_limits(scopes: list[str], per_minute: int | None, monthly_micros: int | None) -> None:
    """Raises:
    Invalid: a limit is out of range, or the key could not call models, or could make a key without its limits."""
    for name, most, bound in (
        ("per_minute", per_minute, range(1, MAX_PER_MINUTE + 1)),
        ("monthly_usd", monthly_micros, range(MAX_MONTHLY + 1)),
    ):
        if most is None:
            continue
        wrong = "" if most in bound else "It is out of range."
        if "gateway:call" not in scopes:
            wrong = "Only a key with the scope gateway:call has such a limit."
        elif _manages(scopes):
            wrong = "A key with a limit can't manage keys: it could make one without."
        if wrong:
            raise Invalid(f"{name}: {wrong}", fields={name: wrong})


def _checked_addresses(scopes: list[str], addresses: Iterable[str]) -> list[str]:
    """Raises:
    Invalid: one is no address, there are too many, or the key could make a key that opens everywhere."""
    try:
        found = networks(addresses)
        wrong = f"At most {MOST_ADDRESSES}." if len(found) > MOST_ADDRESSES else ""
    except ValueError as error:
        found, wrong = [], str(error)
    if found and _manages(scopes):
        wrong = "A key with addresses can't manage keys: it could make one without."
    if wrong:
        raise Invalid(f"addresses: {wrong}", fields={"addresses": wrong})
    return found


def _manages(scopes: Iterable[str]) -> bool:
    return any("keys.edit" in SCOPES[scope] for scope in scopes)


def _check_reach(actor: Actor, wanted: list[str]) -> None:
    """A key can't make a key that may do more than itself: a leaked one must not grow."""
    _check_manages(actor)
    if actor.scopes is None:
        return
    beyond = [scope for scope in wanted if scope not in actor.scopes]
    if beyond:
        raise Forbidden(f"This key can't give the scope {beyond[0]}, which it does not have.")


def _check_manages(actor: Actor) -> None:
    if actor.allowed_by_scopes is not None and "keys.edit" not in actor.allowed_by_scopes:
        raise Forbidden("This key may not manage keys. Sign in, or use a key with the scope training:manage.")


@transaction.atomic
def api_key_revoke(actor: Actor, row: ApiKey) -> None:
    """Ends a key's life. Its owner may, and those who manage the organisation's keys.

    Raises:
        Missing, Forbidden: the actor is neither.
    """
    actor = Actor.of(actor)
    _check_manages(actor)
    if row.user_id != getattr(actor.user, "pk", None):
        require(actor, "keys.edit", row.organization_id)
    if ApiKey.objects.filter(id=row.id, revoked_at=None).update(revoked_at=timezone.now()):
        record(actor, "api_key.revoked", row, organization=row.organization)
