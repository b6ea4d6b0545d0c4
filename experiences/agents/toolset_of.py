"""The tools of one agent, of all sources: the registry, the fetch tool, MCP servers.

The protocol's package takes 20 MB of each process that imports it: it is imported where a server is used.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from agentcore_site.vault import Unsealable, opened
from experiences.models import Agent, ToolServer
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.tools.base import AgentTool
from experiences.rollouts.tools.connection_pool import ConnectionPool
from experiences.rollouts.tools.fetch import FetchTool
from experiences.rollouts.tools.llm_tools import offers
from experiences.rollouts.tools.toolset import Toolset, python_tools

if TYPE_CHECKING:
    from experiences.rollouts.tools.mcp import MCPServer, MCPTools

FETCH: Final = "fetch"


class BadToolServer(ValueError):
    """The server can't be used as it is; ``field`` says where to look."""

    def __init__(self, message: str, field: str = "command") -> None:
        super().__init__(message)
        self.field = field


def tool_names() -> list[tuple[str, str]]:
    """(name, description) of the tools that an agent can be given here."""
    found = list(offers())
    return [*found, (FETCH, FetchTool(settings.FETCH_HOSTS).spec.description)] if settings.FETCH_HOSTS else found


def named_tools(names: Sequence[str]) -> list[AgentTool]:
    """The named tools.

    Raises:
        UnknownName: one is not there (the fetch tool is only where the site allows hosts).
    """
    fetch = [FetchTool(settings.FETCH_HOSTS)] if settings.FETCH_HOSTS and FETCH in names else []
    return [*python_tools(name for name in names if not (fetch and name == FETCH)), *fetch]


def server_value(server: ToolServer, granted: Sequence[str] | None = None) -> MCPServer:
    """The client's value of a server, with the tools that are granted and enabled, or all enabled ones.

    Raises:
        BadToolServer: a token can't be opened, or a field is wrong.
    """
    from experiences.rollouts.tools.mcp import MCPServer

    try:
        token = opened(server.token)
        variables = {name: opened(value) for name, value in server.variables.items()}
        words = shlex.split(server.command)
        return MCPServer(
            name=server.name,
            transport="http" if server.transport == ToolServer.Transport.HTTP else "stdio",
            command=words[0] if words else "",
            args=tuple(words[1:]),
            url=server.url,
            variables=variables,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            tools=_usable(server, granted),
        )
    except Unsealable as error:
        raise BadToolServer(str(error), "token") from None
    except ValueError as error:
        place = "url" if server.transport == ToolServer.Transport.HTTP else "command"
        raise BadToolServer(str(error), place) from error


def _usable(server: ToolServer, granted: Sequence[str] | None) -> tuple[str, ...] | None:
    if granted is None:
        return tuple(server.tools) or None
    return tuple(name for name in granted if not server.tools or name in server.tools)


def connected(
    servers: Sequence[ToolServer],
    granted: Mapping[str, Sequence[str]] | None = None,
    pool: ConnectionPool[Any] | None = None,
) -> MCPTools:
    """Not connected yet: that happens in the loop which asks for the tools. ``granted`` names those that are wanted, by
    their server's id; without it all that may be used are. A ``pool`` lends connections, within an organisation.

    Raises:
        BadToolServer: a server's fields are wrong, or its command may not be started here.
    """
    from experiences.rollouts.tools.mcp import MCPTools

    values = [server_value(server, None if granted is None else granted[str(server.pk)]) for server in servers]
    try:
        owner = {server.organization_id for server in servers}
        return MCPTools(values, commands=settings.MCP_COMMANDS, pool=pool, owner=frozenset(owner))
    except ValueError as error:
        raise BadToolServer(f"{error} The site's setting MCP_COMMANDS says which are.") from error


class AgentTools:
    """An agent's tools for one slice of work in one event loop: of servers those that were granted to it. ``servers``:
    others than those that it has now. ``pool``: connections of that loop, kept for the next slice."""

    def __init__(
        self,
        agent: Agent,
        servers: Sequence[ToolServer] | None = None,
        pool: ConnectionPool[Any] | None = None,
    ) -> None:
        self._pool = pool
        self._own = named_tools(agent.tools)
        self._servers = list(agent.tool_servers.filter(archived_at=None) if servers is None else servers)
        self._granted = agent.granted_tools
        self._mcp: MCPTools | None = None
        self._made: Toolset | None = None
        self._turn = asyncio.Lock()

    async def toolset(self) -> Toolset:
        """All of them, once connected.

        Raises:
            Halted: a server can't be had; without its tools it would be another agent that is measured.
        """
        async with self._turn:
            if self._made is None:
                self._made = Toolset([*self._own, *await self._remote()])
        return self._made

    async def aclose(self) -> None:
        mcp, self._mcp, self._made = self._mcp, None, None
        if mcp is not None:
            await mcp.__aexit__(None, None, None)

    async def _remote(self) -> Sequence[AgentTool]:
        if not self._servers:
            return []
        from experiences.rollouts.tools.mcp import MCPFailure

        if unsaid := next((server.name for server in self._servers if str(server.pk) not in self._granted), ""):
            message = f"It was not chosen which tools of {unsaid} the agent may call: open the agent and choose them."
            raise Halted("llm_refused", message)
        try:
            self._mcp = connected(self._servers, self._granted, self._pool)
            return await self._mcp.tools()
        except BadToolServer as error:
            raise Halted("llm_refused", str(error)) from error
        except MCPFailure as error:
            raise Halted("waiting_for_llm", str(error)) from error
