"""Writes of tool servers (MCP), and a look at what one offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.errors import Invalid
from agentcore_site.rows import check_row, check_secrets_stay, known_fields, save_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.vault import sealed
from experiences.models import ToolServer
from experiences.toolservers import BadToolServer, connected

EDITABLE: Final = ("name", "transport", "url", "command", "tools")


@dataclass(frozen=True)
class Offer:
    """What a server offers: (name, description) of each tool, or why it can't be asked."""

    ok: bool
    message: str
    tools: list[tuple[str, str]] = field(default_factory=list)


@transaction.atomic
def tool_server_create(actor: Any, *, name: str, **values: Any) -> ToolServer:
    """Makes a tool server. ``token`` comes in plain and is sealed.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong, or the command may not be started here.
        Conflict: the name is taken.
    """
    organization = current_organization(actor)
    require(actor, "endpoint.edit", organization)
    server = ToolServer(organization=organization, created_by=Actor.of(actor).user)
    _change(server, {"name": name, **values})
    record(actor, "tool_server.created", server, after=_shown(server))
    return server


@transaction.atomic
def tool_server_update(actor: Any, server: ToolServer, **values: Any) -> ToolServer:
    """Changes a tool server; what is not given stays, and a token that is given empty stays too.

    An address on another host needs its token anew: a stored one is never sent to where it was not meant for.

    Raises:
        Missing, Forbidden, Invalid, Conflict: as for ``tool_server_create``.
    """
    require(actor, "endpoint.edit", server.organization_id)
    before, address = _shown(server), server.url
    _change(server, values, stored=address)
    record(actor, "tool_server.changed", server, before=before, after=_shown(server))
    return server


@transaction.atomic
def tool_server_archive(actor: Any, server: ToolServer) -> ToolServer:
    """Takes a server out of use, from all agents, and forgets its token."""
    require(actor, "endpoint.edit", server.organization_id)
    if server.archived_at is None:
        server.archived_at, server.token = timezone.now(), ""
        server.save(update_fields=["archived_at", "token"])
        server.agents.clear()
        record(actor, "tool_server.archived", server)
    return server


def tool_server_offer(actor: Any, server: ToolServer) -> Offer:
    """Connects, and lists what the server offers to agents.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    require(actor, "agent.edit", server.organization_id)
    from experiences.tools.mcp import MCPFailure

    try:
        return async_to_sync(_asked)(server)
    except (BadToolServer, MCPFailure) as error:
        return Offer(False, str(error))


async def _asked(server: ToolServer) -> Offer:
    async with connected([server]) as mcp:
        found = [(tool.spec.name, tool.spec.description) for tool in await mcp.tools()]
    return Offer(True, f"It offers {len(found)} tool{'' if len(found) == 1 else 's'}.", found)


def _change(server: ToolServer, values: Mapping[str, Any], *, stored: str = "") -> None:
    known_fields(values, (*EDITABLE, "token"))
    for name in EDITABLE:
        if name in values:
            value = values[name]
            setattr(server, name, value.strip() if isinstance(value, str) else value)
    if given := str(values.get("token") or "").strip():
        server.token = sealed(given)
    if not isinstance(server.tools, list) or not all(isinstance(one, str) for one in server.tools):
        raise Invalid("tools is a list of names.", fields={"tools": "A list of names."})
    check_row(server, exclude=["organization", "created_by"])
    try:
        connected([server])
    except BadToolServer as error:
        raise Invalid(str(error), fields={error.field: str(error)}) from error
    check_secrets_stay(
        server, ["token"], given=["token"] if values.get("token") else [], before=stored, after=server.url
    )
    save_row(
        server, unique="name", taken=f"There is already a tool server called {server.name!r}. Choose another name."
    )


def _shown(server: ToolServer) -> dict[str, Any]:
    """For the audit log: everything but the token."""
    return {name: getattr(server, name) for name in EDITABLE} | {"has_token": bool(server.token)}
