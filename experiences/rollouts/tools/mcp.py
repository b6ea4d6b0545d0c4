"""Tools of MCP servers (modelcontextprotocol.io), over stdio and streamable HTTP.

A stdio server is a program that is started here, with the rights of this process. So none is started unless the
caller of ``MCPTools`` allows its command, and by default no command is allowed.
What a server says of its tools is shown to the model: connect only servers that may speak to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    Tool,
)
from mcp.types import TextResourceContents as ResourceText

from agentcore_site.outbound import AddressRefused, parsed
from budgets.llm.types import ToolSpec
from experiences.privacy import cut_short
from experiences.rollouts.tools.base import ToolResult
from experiences.rollouts.tools.connection_pool import ConnectionPool
from experiences.rollouts.tools.mcp_listing import usable_tools
from experiences.rollouts.tools.mcp_transports import TOO_LARGE, http_streams, stdio_streams

MAX_TOOLS: Final = 128  # of one server: as many as a model takes
MAX_PAGES: Final = 20  # of a list of tools
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024  # characters; what OpenAI takes
MAX_ERROR: Final = 2_000
RESTARTS: Final = 1  # of a stdio server that died
LOST: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)


class MCPFailure(Exception):
    """A server can't be started or reached, or its list of tools can't be used. The message says which server."""


@dataclass(frozen=True, slots=True)
class MCPServer:
    """A server and what is used of it.

    ``command`` and ``args`` start a stdio server, which sees ``variables`` and none of the caller's own.
    ``url`` and ``headers`` are for HTTP. ``tools`` are the tools that may be used, by the server's own names; None:
    all that it lists. ``timeout_s`` bounds the connecting and each call.

    Raises:
        ValueError: the name or the address is of the wrong form.
    """

    name: str
    transport: Literal["stdio", "http"]
    command: str = ""
    args: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", self.name):
            raise ValueError(f"A server's name has at most 32 letters, digits, _ and -; got {self.name!r}.")
        if self.transport == "stdio":
            if not self.command:
                raise ValueError(f"{self.name}: a stdio server needs a command.")
            return
        try:
            parsed(self.url)
        except AddressRefused as error:
            raise ValueError(f"{self.name}: {error}") from None


class MCPTools:
    """The tools of some servers: ``async with MCPTools(servers) as mcp: tools = await mcp.tools()``.

    Servers are connected when they are first needed, in the running loop, and closed on leaving, with the processes
    that were started. With a ``pool`` they are lent by it, and go back: to those who give the same ``owner``, servers
    and credentials. ``commands`` allows stdio servers: each is the beginning of a command line, such as
    ("uvx", "mcp-server-time"); ("python",) alone would allow any program.

    Raises:
        ValueError: two servers have one name, or a command is not allowed.
    """

    def __init__(
        self,
        servers: Iterable[MCPServer],
        *,
        commands: Iterable[Sequence[str]] = (),
        pool: MCPPool | None = None,
        owner: Hashable = None,
    ) -> None:
        allowed = [tuple(words) for words in commands]
        self._pool, self._owner = pool, owner
        self._servers: dict[str, MCPServer] = {}
        self._peers: dict[str, _Peer] = {}
        for server in servers:
            line = (server.command, *server.args)
            if server.transport == "stdio" and not any(words and line[: len(words)] == words for words in allowed):
                raise ValueError(f"{server.name}: the command {server.command!r} is not allowed to be started here.")
            if server.name in self._servers:
                raise ValueError(f"Two MCP servers are called {server.name!r}.")
            self._servers[server.name] = server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(self._given_back(peer) for peer in peers.values()))

    async def tools(self) -> list[MCPTool]:
        """The tools that may be used, in the order of the servers. Those that can't be are in ``odd``.

        Raises:
            MCPFailure: a server can't be had, lists too many tools, or lacks one that it should have.
        """
        for name, server in self._servers.items():
            if name not in self._peers:
                self._peers[name] = self._peer(server)
        listed = await asyncio.gather(
            *(_listed(peer, self._servers[name].tools) for name, peer in self._peers.items()), return_exceptions=True
        )
        taken: set[str] = set()
        found: list[MCPTool] = []
        for peer, tools in zip(self._peers.values(), listed, strict=True):
            if isinstance(tools, BaseException):
                raise tools
            for tool in tools:
                name = _safe_name(peer.server.name, tool.name, taken)
                description = (tool.description or tool.title or "")[:MAX_DESCRIPTION]
                parameters = {"properties": {}, **tool.input_schema, "type": "object"}
                found.append(MCPTool(ToolSpec(name, description, parameters), tool.name, peer))
        return found

    @property
    def odd(self) -> dict[str, str]:
        """The listed tools that can't be used, each with the reason."""
        return {name: reason for peer in self._peers.values() for name, reason in peer.odd.items()}

    def _peer(self, server: MCPServer) -> _Peer:
        return _Peer(server) if self._pool is None else self._pool.lend(self._key(server), lambda: _Peer(server))

    async def _given_back(self, peer: _Peer) -> None:
        if self._pool is None:
            await peer.close()
        else:
            await self._pool.take_back(self._key(peer.server), peer)

    def _key(self, server: MCPServer) -> Hashable:
        """Connections are another one by their owner, by where they go, and by their credentials."""
        secrets = (frozenset(server.variables.items()), frozenset(server.headers.items()))
        where = (server.transport, server.command, server.args, server.url, server.timeout_s)
        return (self._owner, server.name, *where, *secrets)


@dataclass(frozen=True)
class MCPTool:
    """One tool of a server, under a name that every model takes. Never raises: what goes wrong is a failed result."""

    spec: ToolSpec
    remote: str
    peer: _Peer = field(repr=False)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            return _read(await self.peer.call(self.remote, dict(arguments)))
        except TimeoutError:
            return ToolResult(False, "", f"timeout: no result within {self.peer.server.timeout_s:g} s")
        except Exception as error:  # also the package's own, such as a result that breaks the tool's schema
            return ToolResult(False, "", _cause(error))


class _Peer:
    """A server and its connection, which is made again after a failure: over stdio ``RESTARTS`` times, over HTTP
    always."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.odd: dict[str, str] = {}  # tools that can't be used, with the reason
        self._link: _Link | None = None
        self._starts_left = 1 + RESTARTS if server.transport == "stdio" else None
        self._connecting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def worn_out(self) -> bool:
        """True for a peer that will never connect again: it is closed, or has no attempts left."""
        return self._closed or (self._link is None and self._starts_left == 0)

    async def begin(self) -> tuple[list[Tool], str | None]:
        """The first page of its tools. Of a connection that is there from before it is the test: where it fails
        within its time, the server is connected again, once. Raises as ``call``."""
        before = self._link
        try:
            return await self.list(None)
        except Exception as error:
            if before is None:
                raise
            self._drop(before)
            if isinstance(error, TimeoutError) or self.worn_out:
                raise
        return await self.list(None)

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Raises TimeoutError, MCPFailure, or what the package raises. A call that may have arrived isn't repeated."""
        link = await self._connected()
        try:
            async with asyncio.timeout(self.server.timeout_s + 1):  # the package's own limit comes first
                return await link.client.call_tool(tool, arguments, read_timeout_seconds=self.server.timeout_s)
        except MCPError as error:
            if not (link.too_large or link.forgotten):
                if error.code == REQUEST_TIMEOUT:
                    raise TimeoutError from error
                if error.code != CONNECTION_CLOSED:
                    raise
            raise self._broken(link, "the server broke off during the call") from error
        except LOST as error:
            raise self._broken(link, "the connection was lost") from error

    async def list(self, cursor: str | None) -> tuple[list[Tool], str | None]:
        """One page of its tools, and where the next begins. Raises as ``call``."""
        link = await self._connected()
        try:
            async with asyncio.timeout(self.server.timeout_s):
                page = await link.client.list_tools(cursor=cursor)
        except (MCPError, *LOST) as error:
            if not link.too_large:
                raise
            raise self._broken(link, TOO_LARGE) from error
        return page.tools, page.next_cursor

    async def close(self) -> None:
        self._closed = True
        async with self._connecting:
            if self._link is not None:
                self._drop(self._link)
        await asyncio.gather(*self._closing)

    def _broken(self, link: _Link, why: str) -> MCPFailure:
        """The failure of a broken link, for the agent. Drops the link."""
        self._drop(link)
        outlook = "it is not started again" if self._starts_left == 0 else "the next call connects again"
        return MCPFailure(f"{self.server.name}: {TOO_LARGE if link.too_large else why}; {outlook}")

    async def _connected(self) -> _Link:
        async with self._connecting:
            if self._closed:
                raise MCPFailure(f"{self.server.name}: the connection was closed")
            if self._link is None:
                if self._starts_left == 0:
                    raise MCPFailure(f"{self.server.name}: the server died and is not started again")
                if self._starts_left is not None:
                    self._starts_left -= 1
                link = _Link(self.server, self.odd)
                await link.open()
                self._link = link
            return self._link

    def _drop(self, link: _Link) -> None:
        if self._link is link:  # of several calls that were under way the first one drops it
            self._link = None
            closing = asyncio.ensure_future(link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


class _Link:
    """One connection, held by a task of its own: it has to be left in the task that entered it, and calls come from
    every rollout's. ``client`` is there once it is open; ``forgotten`` says that an HTTP server (restarted, say)
    no longer knows the session, ``too_large`` that it sent more at once than is read."""

    client: Client
    forgotten = False
    too_large = False

    def __init__(self, server: MCPServer, odd: dict[str, str]) -> None:
        self._server, self._odd = server, odd
        self._scope = anyio.CancelScope()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._holding: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises MCPFailure: it can't be connected, or takes too long."""
        self._holding = asyncio.create_task(self._hold())
        try:
            async with asyncio.timeout(self._server.timeout_s):
                self.client = await asyncio.shield(self._ready)
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            why = f"no answer within {self._server.timeout_s:g} s" if isinstance(error, TimeoutError) else _cause(error)
            raise MCPFailure(f"{self._server.name}: it can't be connected: {why}") from error

    async def close(self) -> None:
        """Ends the process too; the package asks it to, then kills its group after four seconds at most."""
        # Not task.cancel(): the package's clean-up is shielded from the scope's cancellation only.
        self._scope.cancel()
        if self._holding is not None:
            await asyncio.shield(asyncio.gather(self._holding, return_exceptions=True))

    async def _hold(self) -> None:
        try:
            with self._scope:
                async with Client(usable_tools(self._transport(), self._odd), cache=None) as client:
                    if not self._ready.done():
                        self._ready.set_result(client)
                    await anyio.sleep_forever()
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # seen: perhaps no caller waits for it any more
        finally:
            if self.too_large and not self._ready.done():
                self._ready.set_exception(MCPFailure(TOO_LARGE))
                self._ready.exception()
            self._ready.cancel()

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        server = self._server
        if server.transport == "stdio":
            return stdio_streams(server.command, server.args, server.variables, self._overflow)
        return http_streams(server.url, server.headers, server.timeout_s, self._overflow, self._answered)

    def _overflow(self) -> None:
        self.too_large = True
        self._scope.cancel()

    async def _answered(self, response: httpx2.Response) -> None:
        """404 is the protocol's word for a session that is over; what is said beside it differs by server."""
        if response.status_code == 404 and response.request.method == "POST" and self._ready.done():
            self.forgotten = True


MCPPool = ConnectionPool[_Peer]


async def _listed(peer: _Peer, wanted: Sequence[str] | None) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    cursors: set[str] = set()
    name = peer.server.name
    for _ in range(MAX_PAGES):
        try:
            page, cursor = await (peer.list(cursor) if cursor is not None else peer.begin())
        except MCPFailure:
            raise
        except Exception as error:
            raise MCPFailure(f"{name}: its tools can't be listed: {_cause(error)}") from error
        tools += page
        if cursor is None or cursor in cursors:  # a page that was read leads to no other
            break
        cursors.add(cursor)
    else:
        raise MCPFailure(f"{name}: its list of tools has more than {MAX_PAGES} pages")
    tools = _once(tools, peer.odd)
    if wanted is not None:
        tools = [tool for tool in tools if tool.name in wanted]
        if missing := sorted(set(wanted) - {tool.name for tool in tools}):
            why = f": {peer.odd[missing[0]]}" if missing[0] in peer.odd else ""
            raise MCPFailure(f"{name}: it has no {'usable ' if why else ''}tool {missing[0]!r}{why}")
    if len(tools) > MAX_TOOLS:
        raise MCPFailure(f"{name}: it lists {len(tools)} tools; name the ones to use, {MAX_TOOLS} at most")
    return tools


def _once(tools: Sequence[Tool], odd: dict[str, str]) -> list[Tool]:
    """The first tool of each name. Another one of that name is odd; the same tool listed again is not."""
    found: dict[str, Tool] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) != tool:
            odd[tool.name] = "another tool of this name is listed, and only the first one is used"
    return list(found.values())


def _safe_name(server: str, tool: str, taken: set[str]) -> str:
    """server__tool in the letters that models take, at most 64; what was changed or is taken gets a sign of its own.
    Adds it to ``taken``."""
    whole = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if len(name) > MAX_NAME or name in taken:
        sign = hashlib.sha256(whole.encode()).hexdigest()[:8]
        name = f"{name[: MAX_NAME - 9]}_{sign}"
    taken.add(name)
    return name


def _read(result: CallToolResult) -> ToolResult:
    """The texts of a result. What a model can't read is named; a result of nothing else is a failed one."""
    texts, others = [], []
    for block in result.content:
        if isinstance(block, TextContent):
            texts.append(block.text)
        elif isinstance(block, EmbeddedResource) and isinstance(block.resource, ResourceText):
            texts.append(block.resource.text)
        elif isinstance(block, ResourceLink):
            texts.append(f"{block.name}: {block.uri}")
        else:
            others.append(block.type)
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    if result.is_error:
        return ToolResult(False, "", "\n".join(texts) or "the tool failed and did not say why")
    if others and not texts:
        return ToolResult(False, "", f"the result holds no text, only: {', '.join(sorted(set(others)))}")
    return ToolResult(True, "\n".join([*texts, *(f"[{kind}: not shown]" for kind in others)]))


def _cause(error: BaseException) -> str:
    """An error in one line: the first one of a group, since the package raises its own in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    message = " ".join(str(error).split())
    if isinstance(error, MCPError | MCPFailure) and message:
        return cut_short(message, MAX_ERROR)
    return cut_short(f"{type(error).__name__}: {message}".removesuffix(": "), MAX_ERROR)
