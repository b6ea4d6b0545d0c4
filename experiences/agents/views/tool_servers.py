"""Tool servers (MCP): where agents find tools that are not ours."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, asked, listing, matching, page, post_page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.forms import ToolServerForm
from experiences.agents.selectors import tool_server_get, tool_servers_visible
from experiences.agents.services.tool_servers import (
    tool_server_archive,
    tool_server_create,
    tool_server_offer,
    tool_server_update,
)
from experiences.models import ToolServer

SORTS = (Sort("name", "name", "name", descending=False), Sort("newest", "newest first", "created_at"))
COLUMNS = {
    "id": "id",
    "name": "name",
    "url": "url",
    "tools": "tools",
    "created_at": "created_at",
}


@page
def tool_servers(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = tool_servers_visible(actor)
    rows = matching(everything, *asked(request, "q"), "name").prefetch_related("agents")
    found = listing(request, rows, SORTS, one="tool server", of=everything, columns=COLUMNS)
    return render(request, "agents/tool_servers.html", {"listing": found, "rows": found.rows})


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "endpoint.edit", current_organization(actor))
    form = ToolServerForm(sent(request))
    if made := form.applied(tool_server_create, actor):
        messages.success(request, f"{made.name} was created. Check its tools, then select it in an agent's form.")
        return redirect("experiences:tool_server", server_id=made.pk)
    return _form(request, form, None)


@page
def edit(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    server = tool_server_get(actor, server_id)
    require(actor, "endpoint.edit", server.organization_id)
    form = ToolServerForm.of(server, sent(request))
    if form.applied(tool_server_update, actor, server):
        messages.success(request, "Saved.")
        return redirect("experiences:tool_server", server_id=server.pk)
    return _form(request, form, tool_server_get(actor, server_id))


@post_page
def archive(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    server = tool_server_archive(actor, tool_server_get(actor, server_id))
    messages.success(request, f"{server.name} is archived; agents continue without its tools.")
    return redirect("experiences:tool_servers")


@post_page
def offer(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    found = tool_server_offer(actor, tool_server_get(actor, server_id))
    return render(request, "agents/_offer.html", {"found": found})


def _form(request: HttpRequest, form: ToolServerForm, server: ToolServer | None) -> HttpResponse:
    return render(request, "agents/tool_server.html", {"form": form, "server": server}, status=form.status)
