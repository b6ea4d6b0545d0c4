"""Viewers of a job over a socket. Rights are checked again at every poll, so that a revoked right closes its socket."""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError
from importlib import import_module
from typing import Any, Final, Protocol

from channels.auth import get_user
from channels.db import database_sync_to_async
from django.conf import settings
from django.http import parse_cookie

from agentcore_site.jobs.models import Job
from agentcore_site.jobs.selectors import job_get, share_alive, shared_job, token_digest
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.row_scope import only
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import socket_address
from agentcore_site.tenancy.authentication import actor_of_token, bearer

_sessions: Final[Any] = import_module(settings.SESSION_ENGINE)


class Viewer(Protocol):
    """``subject`` identifies the viewer for the count of open sockets; it is known after ``find``."""

    subject: str
    limit: int

    async def find(self) -> Job | None:
        """The job, if this viewer may follow it."""

    async def may_follow(self, job: Job) -> bool:
        """True if the viewer may still follow the job."""


@dataclass
class LinkViewer:
    """The holder of a share link."""

    token: str

    def __post_init__(self) -> None:
        self.subject = f"link:{token_digest(self.token)}"
        self.limit = settings.SOCKETS_PER_LINK

    @database_sync_to_async
    def find(self) -> Job | None:
        return shared_job(self.token)

    @database_sync_to_async
    def may_follow(self, job: Job) -> bool:
        return share_alive(self.token)


@dataclass
class MemberViewer:
    """A person by an API key, a JWT or the console's session."""

    job_id: str
    token: str
    session_key: str
    address: str
    subject: str = ""

    def __post_init__(self) -> None:
        self.limit = settings.SOCKETS_PER_PERSON

    async def find(self) -> Job | None:
        actor = await self._actor()
        self.subject = f"person:{getattr(actor.user, 'pk', None)}"
        return await self._job(actor)

    async def may_follow(self, job: Job) -> bool:
        return await self._job(await self._actor()) is not None

    async def _actor(self) -> Actor:
        if self.token:
            return await database_sync_to_async(actor_of_token)(self.token, ip=self.address) or Actor(None)
        # Read from its store each time: signing out deletes it, and a new password makes its digest invalid.
        return Actor(await get_user({"session": _sessions.SessionStore(self.session_key)}), interface="console")

    @database_sync_to_async
    def _job(self, actor: Actor) -> Job | None:
        try:
            with only(*actor.organization_ids):
                return None if actor.only_service or not actor.may_read else job_get(actor, self.job_id)
        except DomainError:
            return None


def viewer_of(scope: dict[str, Any]) -> Viewer:
    """The viewer that a handshake's address and headers name."""
    kwargs = scope["url_route"]["kwargs"]
    if "token" in kwargs:
        return LinkViewer(kwargs["token"])
    return MemberViewer(kwargs["job_id"], bearer_of(scope), session_key_of(scope), socket_address(scope))


def bearer_of(scope: dict[str, Any]) -> str:
    """The API key or JWT of a handshake, or nothing."""
    return bearer(_header(scope, b"authorization"))


def session_key_of(scope: dict[str, Any]) -> str:
    """The console's session that a handshake's cookie names, or nothing."""
    try:
        return str(parse_cookie(_header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME, ""))
    except CookieError:
        return ""


def _header(scope: dict[str, Any], name: bytes) -> str:
    return dict(scope.get("headers", [])).get(name, b"").decode("latin-1")
