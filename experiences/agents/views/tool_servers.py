"""Tool servers (MCP): where agents find tools that are not ours."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import post_page
from agentcore_site.console.row_pages import RowPages
from agentcore_site.tenancy.actors import Actor
from experiences.agents.forms import ToolServerForm
from experiences.agents.presenters import ToolServerOut
from experiences.agents.selectors import tool_server_get, tool_servers_visible
from experiences.agents.services.tool_servers import (
    tool_server_archive,
    tool_server_create,
    tool_server_offer,
    tool_server_update,
)


class ToolServerPages(RowPages):
    one = ("tool server", "server")
    right = "endpoint.edit"
    form = ToolServerForm
    templates = ("agents/tool_servers.html", "agents/tool_server.html")
    addresses = ("experiences:tool_servers", "experiences:tool_server")
    notices = (
        "{} was created. Check its tools, then select it in an agent's form.",
        "Saved.",
        "{} is archived; agents continue without its tools.",
    )
    reads = (tool_servers_visible, tool_server_get)
    writes = (tool_server_create, tool_server_update, tool_server_archive)
    columns = ToolServerOut


pages = ToolServerPages()


@post_page
def offer(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    found = tool_server_offer(actor, tool_server_get(actor, server_id))
    return render(request, "agents/_offer.html", {"found": found})
