"""REST: the tools that agents may call, and the MCP servers that offer some."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict
from agentcore_site.rest.rows import ArchivableViewSet, RowOperations
from agentcore_site.rest.views import ScopedViewSet
from experiences.agents.presenters import ToolServerOut
from experiences.agents.selectors import tool_server_get, tool_servers_visible
from experiences.agents.services.tool_servers import (
    tool_server_archive,
    tool_server_create,
    tool_server_offer,
    tool_server_update,
)
from experiences.agents.toolset_of import tool_names
from experiences.models import ToolServer


class ToolOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()


class ToolServerIn(Strict):
    name = serializers.CharField(max_length=30)
    transport = serializers.ChoiceField(choices=ToolServer.Transport.choices, required=False)
    url = serializers.CharField(max_length=300, required=False, allow_blank=True)
    command = serializers.CharField(
        max_length=500, required=False, allow_blank=True, help_text="One that the site's MCP_COMMANDS allows."
    )
    token = serializers.CharField(max_length=4000, required=False, allow_blank=True, write_only=True)
    variables = serializers.DictField(
        child=serializers.CharField(max_length=4000, allow_blank=True),
        required=False,
        write_only=True,
        help_text="What a program (stdio) is given, by name (..._KEY, _TOKEN, _SECRET, _PASSWORD, _ID); an empty value"
        " means the stored one.",
    )
    tools = serializers.ListField(
        child=serializers.CharField(max_length=100), max_length=128, required=False, help_text="Empty: all it lists."
    )


class ToolServerPatch(ToolServerIn):
    name = serializers.CharField(max_length=30, required=False)


class OfferedToolOut(ToolOut):
    own_name = serializers.CharField(help_text="What its server calls it; agents are granted it by this name.")


class OfferOut(serializers.Serializer[Any]):
    ok = serializers.BooleanField()
    message = serializers.CharField()
    tools = OfferedToolOut(many=True)


NEW = OpenApiExample(
    "Over HTTP", {"name": "search", "url": "https://mcp.example.org/mcp", "token": "..."}, request_only=True
)


class ToolServerViewSet(ArchivableViewSet):
    queryset = ToolServer.objects.none()
    lookup_value_converter = "uuid"
    operations = RowOperations(
        "a tool server",
        shapes=(ToolServerOut, ToolServerIn, ToolServerPatch),
        reads=(tool_servers_visible, tool_server_get),
        writes=(tool_server_create, tool_server_update, tool_server_archive),
    )
    documented = {"create": {"examples": [NEW]}, "destroy": {"summary": "Take a tool server out of use"}}

    @extend_schema(summary="The tools of a tool server", responses=OfferOut)
    @action(detail=True, methods=["post"])
    def offer(self, request: Request, pk: UUID) -> Response:
        """Connects to it and lists the tools that agents would get."""
        found = tool_server_offer(self.actor, tool_server_get(self.actor, pk))
        return Response(OfferOut(found).data)


class ToolViewSet(ScopedViewSet):
    tag = "catalogue"
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(summary="Tools that agents may call", responses=ToolOut(many=True))
    def retrieve(self, request: Request) -> Response:
        return Response([{"name": name, "description": description} for name, description in tool_names()])
