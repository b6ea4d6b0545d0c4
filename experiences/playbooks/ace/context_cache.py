"""Cache of the fast path: a key's owner for a second, a context until a message says that it changed.

Both are read by the same functions that the other interfaces use. A change is announced to every process; where no
message can come (Redis is away) a context is believed for half a second only.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Final

from rest_framework.exceptions import APIException

from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.lib.row_scope import only
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import JwtAuthentication, actor_of_key, scopes_of
from agentcore_site.tenancy.services import KEY_PREFIX
from experiences.playbooks.ace.access import is_service
from experiences.playbooks.ace.answers import CACHING, ContextAnswer, context_answer
from experiences.playbooks.selectors import Compiled, compiled

CALLER_SECONDS: Final = 1.0  # a key that was revoked opens nothing after that
NOTIFIED_SECONDS, UNNOTIFIED_SECONDS = 5.0, 0.5  # how long a context is believed

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Caller:
    """A service that was let in, and the organisations that it belongs to."""

    actor: Actor
    organizations: tuple[uuid.UUID, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A context ready to be sent."""

    etag: str
    body: bytes
    whole: Headers = field(repr=False)
    unchanged: Headers = field(repr=False)


@dataclass(frozen=True, slots=True)
class Served:
    """The context of an agent; ``same`` is the answer to all requests where no item is left out."""

    agent_id: str
    found: Compiled
    same: Sent | None

    def sent(self) -> Sent:
        return self.same or _sent(context_answer(self.found))


def fingerprint(token: str) -> bytes:
    """Under which a caller is remembered: no key is in memory longer than its request."""
    return hashlib.sha256(token.encode()).digest()


def caller_of(token: str) -> Caller | None:
    """The caller of a key or token that is a service's; None for any other. A key that may be used from
    some addresses only is not answered here: what is remembered of it knows none."""
    actor = actor_of_key(token, ip="") if token.startswith(KEY_PREFIX) else _actor_of_jwt(token)
    if actor is None or not is_service(actor) or not actor.may_read:
        return None
    return Caller(actor, tuple(sorted(actor.organization_ids)))


def _actor_of_jwt(token: str) -> Actor | None:
    authentication = JwtAuthentication()
    try:
        checked = authentication.get_validated_token(token.encode())
        return Actor(authentication.get_user(checked), scopes=scopes_of(checked), interface="jwt")
    except APIException:
        return None


def served(caller: Caller, agent: str) -> Served | None:
    """The context of an agent, if the caller may see one and a release is deployed."""
    try:
        with only(*caller.actor.organization_ids):
            found = compiled(caller.actor, agent)
    except (Missing, Conflict):
        return None
    return Served(str(found.agent_id), found, None if found.rate else _sent(context_answer(found)))


def _sent(answer: ContextAnswer) -> Sent:
    shared: Headers = [
        (b"etag", answer.etag.encode()),
        (b"cache-control", CACHING.encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    length = str(len(answer.body)).encode()
    whole = [(b"content-type", b"application/json"), (b"content-length", length), *shared]
    return Sent(answer.etag, answer.body, whole, shared)
