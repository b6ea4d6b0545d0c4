"""Access to the services' addresses: only keys and tokens that carry the scope ``service:internal``."""

from __future__ import annotations

from agentcore_site.lib.errors import Forbidden
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SERVICE


def is_service(actor: Actor) -> bool:
    return actor.scopes is not None and SERVICE in actor.scopes


def require_service(actor: Actor) -> None:
    """Raises:
    Forbidden: the key or token lacks the scope."""
    if not is_service(actor):
        raise Forbidden(f"These addresses are for services: they take an API key or a token with the scope {SERVICE}.")
