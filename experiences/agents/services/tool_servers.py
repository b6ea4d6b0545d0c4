"""Writes of tool servers (MCP), and a look at what one offers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.db import transaction

from agentcore_site.audit.services import archive, record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import check_row, check_secrets_stay, hold_row, save_row, set_fields
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.vault import sealed
from experiences.agents.toolset_of import BadToolServer, connected
from experiences.models import ToolServer

EDITABLE: Final = ("name", "transport", "url", "command", "tools")
SECRETS: Final = ("token", "variables")
# Others could make an allowed program load or fetch another one: LD_PRELOAD, NODE_OPTIONS, UV_INDEX_URL.
ENTER_AGAIN: Final = "The command is another one now: enter its variables again, so that they go nowhere by mistake."
VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,60}_(KEY|TOKEN|SECRET|PASSWORD|ID)")


@dataclass(frozen=True)
class OfferedTool:
    """``name`` is what models call it, ``own_name`` what its server does; agents are granted it by that."""

    own_name: str
    name: str
    description: str


@dataclass(frozen=True)
class Offer:
    """Tools of a server, or the reason why it can't be asked."""

    ok: bool
    message: str
    tools: list[OfferedTool] = field(default_factory=list)


@transaction.atomic
def tool_server_create(actor: Actor, *, name: str, **values: Any) -> ToolServer:
    """Makes a tool server. ``token`` and ``variables`` (by name, of a stdio server) come in plain and are sealed.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong, or the command may not be started here.
        Conflict: the name is taken.
    """
    organization = current_organization(actor)
    require(actor, "endpoint.edit", organization)
    server = ToolServer(organization=organization, created_by=Actor.of(actor).user)
    _change(server, {"name": name, **values})
    record(actor, "tool_server.created", server, after=_audited(server))
    return server


@transaction.atomic
def tool_server_update(actor: Actor, server: ToolServer, **values: Any) -> ToolServer:
    """Changes a tool server; what is not given stays, and a token or variable that is given empty stays too.

    An address on another host requires the token again, another command its variables: a stored secret is never sent
    to another host or command.

    Raises:
        Missing, Forbidden, Invalid: as for ``tool_server_create``.
        Conflict: the name is taken, or the server is archived.
    """
    require(actor, "endpoint.edit", server.organization_id)
    hold_row(server)
    if server.archived_at is not None:
        raise Conflict(f"{server.name} is archived.")
    before = _audited(server)
    _change(server, values, address=server.url, command=server.command)
    record(actor, "tool_server.changed", server, before=before, after=_audited(server))
    return server


@transaction.atomic
def tool_server_archive(actor: Actor, server: ToolServer) -> ToolServer:
    """Takes a server out of use, from all agents, and forgets its secrets."""
    require(actor, "endpoint.edit", server.organization_id)
    if archive(actor, server, "tool_server.archived", token="", variables={}):
        server.agents.clear()
    return server


def tool_server_offer(actor: Actor, server: ToolServer) -> Offer:
    """Connects, and lists what the server offers to agents.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    require(actor, "agent.edit", server.organization_id)
    from experiences.rollouts.tools.mcp import MCPFailure

    try:
        return async_to_sync(_asked)(server)
    except (BadToolServer, MCPFailure) as error:
        return Offer(False, str(error))


async def _asked(server: ToolServer) -> Offer:
    async with connected([server]) as mcp:
        found = [OfferedTool(tool.remote, tool.spec.name, tool.spec.description) for tool in await mcp.tools()]
        odd = [f"{name} ({reason})" for name, reason in sorted(mcp.odd.items())]
    unusable = f" These can't be used: {'; '.join(odd)}." if odd else ""
    return Offer(True, f"It offers {len(found)} tool{'' if len(found) == 1 else 's'}.{unusable}", found)


def _change(server: ToolServer, values: Mapping[str, Any], *, address: str = "", command: str = "") -> None:
    set_fields(server, values, EDITABLE, beside=SECRETS)
    if given := str(values.get("token") or "").strip():
        server.token = sealed(given)
    if values.get("variables") is not None:
        server.variables = _sealed_variables(values["variables"], server.variables, moved=command != server.command)
    elif server.variables and command != server.command:
        raise _bad_variables(ENTER_AGAIN)
    if server.variables and server.transport != ToolServer.Transport.STDIO:
        raise _bad_variables("Variables are for a program (stdio); a server over HTTP takes a token.")
    if not isinstance(server.tools, list) or not all(isinstance(tool, str) for tool in server.tools):
        raise Invalid("tools is a list of names.", fields={"tools": "A list of names."})
    check_row(server, exclude=["organization", "created_by"])
    try:
        connected([server])
    except BadToolServer as error:
        raise Invalid(str(error), fields={error.field: str(error)}) from error
    check_address("url", server.url, before=address)
    check_secrets_stay(
        server, ["token"], given=["token"] if values.get("token") else [], before=address, after=server.url
    )
    save_row(
        server, unique="name", taken=f"There is already a tool server called {server.name!r}. Choose another name."
    )


def _audited(server: ToolServer) -> dict[str, Any]:
    """For the audit log: everything but the secrets."""
    return {name: getattr(server, name) for name in EDITABLE} | {
        "has_token": bool(server.token),
        "variables": sorted(server.variables),
    }


def _sealed_variables(given: Any, stored: Mapping[str, str], *, moved: bool) -> dict[str, str]:
    """Variables after the change; an empty value keeps the stored one. Raises Invalid."""
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise _bad_variables("variables is an object of texts by name.")
    found = {}
    for name, value in given.items():
        if not VARIABLE.fullmatch(name):
            raise _bad_variables(f"{name[:60]!r} can't be given: a variable's name ends in _KEY, _TOKEN, _SECRET, ...")
        if not value and name not in stored:
            raise _bad_variables(f"{name} has no value.")
        if not value and moved:
            raise _bad_variables(ENTER_AGAIN)
        found[name] = sealed(value) if value else stored[name]
    return found


def _bad_variables(message: str) -> Invalid:
    return Invalid(message, fields={"variables": message})
