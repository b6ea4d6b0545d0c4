"""The one client for addresses that people and models enter: model endpoints, tool servers, agents, environments,
webhooks, pages.

Names are resolved here, every address is checked, and the connection goes to a checked address, so that a name that
changes between check and connection gains nothing. Redirects are not followed, cookies are not kept, answers are not
unpacked. Proxies and certificates are those of the site (``OutboundPolicy``).
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Self

import aiohttp
import truststore
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from agentcore_site.outbound.errors import (
    AddressRefused,
    ConnectFailed,
    ConnectionBroken,
    ConnectTimedOut,
    OutboundError,
    Redirected,
)
from agentcore_site.outbound.policy import OutboundPolicy, Target, current_policy

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 4.0  # uvicorn (vLLM) closes after 5; a request sent into a closing connection would be lost
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class OutboundClient:
    """Connections to checked addresses, kept for ``idle_s`` seconds. Belongs to one event loop; use it as an
    asynchronous context manager, or call ``aclose``. How many requests run at once is the caller's to limit, and so is
    the time of a whole exchange; ``connect_s`` limits resolving and connecting, in seconds."""

    def __init__(
        self, *, connect_s: float = CONNECT_SECONDS, idle_s: float = IDLE_SECONDS, policy: OutboundPolicy | None = None
    ) -> None:
        self._policy = policy or current_policy()
        self._connect_s, self._idle_s = connect_s, idle_s
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # through a proxy or not

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def target(self, address: str) -> Target:
        """Raises AddressRefused."""
        return self._policy.target(address)

    async def send(
        self,
        method: str,
        target: Target,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        sending: Callable[[], None] | None = None,
    ) -> Response:
        """Sends a request and reads the head of its answer. ``sending`` is called before its body is.

        Raises:
            OutboundError: as its classes say.
        """
        try:
            answer = await self._session(target).request(
                method,
                target.url,
                headers=headers,
                data=body if body is None or sending is None else _WatchedBody(body, sending),
                allow_redirects=False,
                proxy=target.proxy,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error) from None
        if answer.status in REDIRECTS:
            answer.close()
            raise Redirected(answer.status, answer.headers.get("location", ""))
        return Response(answer)

    def _session(self, target: Target) -> aiohttp.ClientSession:
        proxied = target.proxy is not None
        if proxied not in self._sessions:
            connector = _Connector(
                resolver=None if proxied else CheckedResolver(self._policy),
                ssl=tls(self._policy.ca_file),
                keepalive_timeout=self._idle_s,
                limit=0,
            )
            self._sessions[proxied] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s),
                auto_decompress=False,
                headers={"user-agent": "agentcore", "accept-encoding": "identity"},
            )
        return self._sessions[proxied]


class Response:
    """An answer whose body is still to be read. ``close`` keeps its connection where it was read to its end."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers  # looked up in any case

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def piece(self) -> bytes | None:
        """The next piece of the body, as it arrives; None at its end. (An asynchronous generator would cost more than
        all that is done here.) Raises ConnectionBroken."""
        try:
            return await self._answer.content.readany() or None
        except (aiohttp.ClientError, OSError):
            raise ConnectionBroken("The connection ended in the middle of the answer.") from None

    async def read(self, limit: int) -> bytes:
        """The body, or its first ``limit`` + 1 bytes at most. Raises ConnectionBroken."""
        found = bytearray()
        while len(found) <= limit and (piece := await self.piece()) is not None:
            found += piece
        return bytes(found[: limit + 1])

    def close(self) -> None:
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class CheckedResolver(AbstractResolver):
    """The system's resolver, whose answers are checked: the connection is made to what it returns, and to nothing
    else. One address that may not be called refuses the whole name: such a name is not to be trusted."""

    def __init__(self, policy: OutboundPolicy) -> None:
        self._policy = policy
        self._system = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressRefused, OSError."""
        found = await self._system.resolve(host, port, family)
        for one in found:
            address = ipaddress.ip_address(one["host"].partition("%")[0])
            self._policy.check(address, host=host.lower().removesuffix("."))
        return found

    async def close(self) -> None:
        await self._system.close()


@lru_cache(maxsize=16)
def tls(ca_file: str) -> ssl.SSLContext:
    """Trusts what the operating system trusts, and the certificates of ``ca_file``. One for all connections: loading
    the certificates takes longer than a call."""
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Connector(aiohttp.TCPConnector):
    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        """An idle connection on which bytes came is not used again: they would be read as the next answer. (The
        library looks for them only when a connection becomes idle.)"""
        while (found := await super()._get(key, traces)) is not None:
            if found.protocol is None or not found.protocol.should_close:
                return found
            found.close()
        return None


class _WatchedBody(aiohttp.BytesPayload):
    """A body that reports when it is about to leave. (The library's tracing would cost a tenth of a call.)"""

    def __init__(self, body: bytes, sending: Callable[[], None]) -> None:
        super().__init__(body)
        self._sending = sending

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._sending()
        await super().write_with_length(writer, content_length)


def _failure(error: Exception) -> OutboundError:
    """The HTTP library's error as ours: its own message may hold the address."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimedOut("The connection was not made in time.")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return ConnectFailed("The server's certificate is not trusted here (setting OUTBOUND_CA_FILE).")
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return ConnectFailed("The site's proxy did not make the connection.")
        case aiohttp.ClientConnectorDNSError():
            return ConnectFailed("The host's name is not known.")
        case aiohttp.ClientConnectorError():
            return ConnectFailed("The connection was refused, or the host can't be reached.")
        case aiohttp.InvalidURL():
            return AddressRefused("The address can't be used.")
        case aiohttp.ServerDisconnectedError():
            return ConnectionBroken("The server hung up without an answer.")
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return ConnectionBroken("The server does not speak HTTP as it should.")
    return ConnectionBroken("The connection was lost.")
