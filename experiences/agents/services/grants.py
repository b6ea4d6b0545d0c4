"""The tools of MCP servers that an agent may call. They are pinned when the agent is saved: new tools of a
server are denied until a person grants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.tool_servers import tool_server_offer
from experiences.models import Agent, ToolServer

Grants = dict[ToolServer, list[str]]


def grants_wanted(
    actor: Actor, agent: Agent, servers: Iterable[ToolServer] | None, named: Mapping[str, Sequence[str]] | None
) -> Grants | None:
    """The servers and tools that an agent gets; None where nothing was said of them. Of a server that is new to it and
    for which no tools are named, it gets those that the server offers now; one whose list is empty it does not get.

    Raises:
        Missing: there is no such tool server.
        Invalid: a tool is not one that may be used, or a server can't be asked.
    """
    if servers is None and named is None:
        return None
    new = agent._state.adding
    if servers is None:
        servers = () if new else agent.tool_servers.filter(archived_at=None)
    chosen, wanted = list(servers), dict(named or {})
    if any(one.organization_id != agent.organization_id for one in chosen):
        raise Missing("There is no such tool server.")
    if unknown := sorted(set(wanted) - {str(one.pk) for one in chosen}):
        message = f"Tools are named of {unknown[0]!r}, which is none of the agent's tool servers."
        raise Invalid(message, fields={"granted_tools": message})
    kept = {} if new else agent.granted_tools
    found: Grants = {}
    for server in chosen:
        key = str(server.pk)
        names = _checked(server, wanted[key]) if key in wanted else kept.get(key)
        found[server] = _offered(actor, server) if names is None else names
    return {server: names for server, names in found.items() if names}


def grants_set(agent: Agent, grants: Grants | None) -> None:
    """Writes what ``grants_wanted`` found; the agent is stored by now."""
    if grants is not None:
        agent.granted_tools = {str(server.pk): names for server, names in grants.items()}
        agent.save(update_fields=["granted_tools"])
        agent.tool_servers.set(grants)


def _checked(server: ToolServer, names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise _refused(f"{server.name}: name its tools in a list.")
    if server.tools and (others := sorted(set(names) - set(server.tools))):
        raise _refused(f"{server.name}: {others[0]!r} is not one of the tools that may be used of it.")
    return list(dict.fromkeys(names))


def _offered(actor: Actor, server: ToolServer) -> list[str]:
    offer = tool_server_offer(actor, server)
    if not offer.ok:
        raise _refused(f"What {server.name} offers can't be seen now: {offer.message} Name its tools, or try again.")
    return [tool.own_name for tool in offer.tools]


def _refused(message: str) -> Invalid:
    return Invalid(message, fields={"tool_servers": message, "granted_tools": message})
