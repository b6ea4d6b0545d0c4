"""Writes of tenancy: API keys."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey, Organization
from agentcore_site.tenancy.permissions import current_organization
from agentcore_site.tenancy.roles import SCOPES

KEY_PREFIX = "ac_"
MAX_DAYS = 366


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
    actor: Any,
    *,
    name: str,
    scopes: Iterable[str],
    days: int = 90,
    organization: Organization | None = None,
) -> tuple[ApiKey, str]:
    """Makes a key for the actor. Returns the row and the key itself, which is never shown again."""
    actor = Actor.of(actor)
    if not 1 <= days <= MAX_DAYS:
        message = f"A key lives between 1 and {MAX_DAYS} days; got {days}."
        raise Invalid(message, fields={"days": message})
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    row = ApiKey.objects.create(
        organization=organization or current_organization(actor),
        user=actor.user,
        name=name.strip() or "key",
        prefix=key[:10],
        digest=key_digest(key),
        scopes=check_scopes(scopes),
        expires_at=timezone.now() + timedelta(days=days),
    )
    record(actor, "api_key.created", row, organization=row.organization, after={"scopes": row.scopes, "name": row.name})
    return row, key


@transaction.atomic
def api_key_revoke(actor: Any, row: ApiKey) -> None:
    if ApiKey.objects.filter(id=row.id, revoked_at=None).update(revoked_at=timezone.now()):
        record(actor, "api_key.revoked", row, organization=row.organization)
