"""REST: the environments that agents can be trained in."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from experiences.rollouts.environments import environments


class PluginOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    options = serializers.DictField(child=serializers.CharField(), help_text="What each option does.")


def described(registry: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "description": plugin.description, "options": dict(plugin.option_help)}
        for name, plugin in registry.items()
    ]


class EnvironmentViewSet(ScopedViewSet):
    tag = "catalogue"
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(summary="Environments and their options", responses=PluginOut(many=True))
    def retrieve(self, request: Request) -> Response:
        return Response(described(environments))
