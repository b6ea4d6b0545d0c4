"""REST: presets, and the JSON schema of a job's settings."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from experiences.rollouts.runtimes.base import calls_model
from training.config.presets import DEFAULT_PRESET, PRESETS, Preset, preset_config
from training.learners import learners
from training.schema import GRPOConfig


class PresetOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    when = serializers.CharField(help_text="When to take it.")
    default = serializers.BooleanField()
    fits = serializers.CharField(help_text="all, action (agents that choose actions) or model (of a language model).")
    config = serializers.DictField(help_text="The whole configuration: for agents that choose actions, where it fits.")


class PresetViewSet(ScopedViewSet):
    tag = "catalogue"
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(summary="Presets", responses=PresetOut(many=True))
    def retrieve(self, request: Request) -> Response:
        found = [
            {
                "name": preset.name,
                "title": preset.title,
                "when": preset.when,
                "default": preset.name == DEFAULT_PRESET,
                "fits": _fits(preset),
                "config": preset_config(preset.name, "llm" if _fits(preset) == "model" else "action").as_dict(),
            }
            for preset in PRESETS.values()
        ]
        return Response(found)


def _fits(preset: Preset) -> str:
    """The agents of a preset: those that choose actions ("action"), those of a language model ("model"), or "all"."""
    if not preset.fits:
        return "all"
    of_models = [calls_model(runtime) for name in preset.fits for runtime in learners.get(name).runtimes]
    return "all" if len(set(of_models)) > 1 else "model" if all(of_models) else "action"


class ConfigSchemaViewSet(ScopedViewSet):
    tag = "catalogue"
    pagination_class = None  # type: ignore[assignment]

    @extend_schema(summary="JSON schema of a training job's configuration", responses={200: OpenApiTypes.OBJECT})
    def retrieve(self, request: Request) -> Response:
        return Response(GRPOConfig.model_json_schema())
