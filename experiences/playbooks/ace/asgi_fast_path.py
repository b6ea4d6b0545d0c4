"""The fast path: an agent's context, before each of its tasks, from memory and past Django's middleware.

It answers only what it is sure of: a service's key that was looked at within the last second, and a context that was
not changed since it was read. Everything else (no key, a wrong one, no playbook, an odd address) goes on to Django,
which says what is wrong as it does at every address.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agentcore_site.lib.read_cache import ReadCache
from experiences.playbooks.ace.answers import still_holds
from experiences.playbooks.ace.context_cache import (
    CALLER_SECONDS,
    NOTIFIED_SECONDS,
    UNNOTIFIED_SECONDS,
    Caller,
    Served,
    caller_of,
    fingerprint,
    served,
)
from experiences.playbooks.ace.invalidation_listener import InvalidationListener
from experiences.playbooks.metrics import context_seconds, contexts

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

ADDRESS: Final = re.compile(r"/internal/ace/playbooks/([A-Za-z0-9-]{1,60})/context")
WANTED: Final = frozenset({b"authorization", b"host", b"if-none-match", b"x-forwarded-proto"})
BEARER: Final = "bearer "
_remembered, _read = contexts.labels(source="memory"), contexts.labels(source="database")


class FastContexts:
    """An ASGI application in front of another."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind
        self._callers: ReadCache[bytes, Caller] = ReadCache()
        self._contexts: ReadCache[tuple[Any, str], Served] = ReadCache()
        self._listener = InvalidationListener(self._changed)
        self._hosts: set[bytes] = set()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        began = time.perf_counter()
        found = await self._found(scope)
        if found is not None:
            context_seconds.observe(time.perf_counter() - began)
        if found is None:
            await self._behind(scope, receive, send)
            return
        headers, agent_context = found
        context = agent_context.sent()
        if still_holds(context.etag, headers.get(b"if-none-match", b"").decode("latin-1")):
            status, sent, body = 304, context.unchanged, b""
        else:
            status, sent, body = 200, context.whole, context.body
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})

    async def _found(self, scope: dict[str, Any]) -> tuple[dict[bytes, bytes], Served] | None:
        """Headers and context of a request that can be answered here."""
        asked = ADDRESS.fullmatch(scope["path"])
        if asked is None or scope["method"] != "GET" or scope["query_string"]:
            return None
        headers = {name: value for name, value in scope["headers"] if name in WANTED}
        token = headers.get(b"authorization", b"").decode("latin-1")
        if not self._is_ours(scope, headers) or token[: len(BEARER)].lower() != BEARER:
            return None
        self._listener.ensure()
        caller = await self._caller(token[len(BEARER) :].strip())
        context = None if caller is None else await self._context(caller, asked.group(1))
        return None if context is None else (headers, context)

    async def _caller(self, token: str) -> Caller | None:
        return await self._callers.get(fingerprint(token), CALLER_SECONDS, lambda: caller_of(token))

    async def _context(self, caller: Caller, agent: str) -> Served | None:
        """One organisation's memory is never another's: its id is a part of the name."""
        key = (caller.organizations, agent)
        known = self._contexts.fresh(key, NOTIFIED_SECONDS if self._listener.listening else UNNOTIFIED_SECONDS)
        if known is not None:
            _remembered.inc()
            return known
        _read.inc()
        return await self._contexts.read(key, lambda: served(caller, agent))

    def _changed(self, agent_id: str | None) -> None:
        if agent_id is None:
            self._contexts.forget()
        else:
            self._contexts.forget(lambda context: context.agent_id == agent_id)

    def _is_ours(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> bool:
        """Whether Django would take the request: for this host, and over TLS where that is asked for."""
        secure = scope["scheme"] == "https" or headers.get(b"x-forwarded-proto") == b"https"
        if settings.SECURE_SSL_REDIRECT and not secure:
            return False
        host = headers.get(b"host", b"")
        if host not in self._hosts:
            domain, _ = split_domain_port(host.decode("latin-1"))
            if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
                return False
            self._hosts.add(host)
        return True
