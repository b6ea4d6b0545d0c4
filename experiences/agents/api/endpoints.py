"""REST: model endpoints."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.money import dollars
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ArchivableViewSet, RowOperations
from agentcore_site.rest.shapes import Shape
from experiences.agents.endpoint_config import PURPOSES
from experiences.agents.presenters import EndpointOut
from experiences.agents.selectors import endpoint_get, endpoints_visible
from experiences.agents.services.endpoints import endpoint_archive, endpoint_create, endpoint_test, endpoint_update
from experiences.models import EndpointKind, ModelEndpoint


class EndpointIn(Strict):
    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(choices=EndpointKind.choices, required=False)
    base_url = serializers.CharField(max_length=300, help_text="Address without /chat/completions.")
    model = serializers.CharField(max_length=120, required=False, allow_blank=True)
    api_key = serializers.CharField(max_length=4000, required=False, allow_blank=True, write_only=True)
    purpose_keys = serializers.DictField(
        child=serializers.CharField(max_length=4000, allow_blank=True),
        required=False,
        write_only=True,
        help_text=f"Keys in place of api_key, by purpose: {', '.join(PURPOSES)}. Empty: the stored one stays.",
    )
    gateway_key = serializers.CharField(
        max_length=4000, required=False, allow_blank=True, write_only=True, help_text="Portkey's own key."
    )
    virtual_key = serializers.CharField(
        max_length=4000, required=False, allow_blank=True, write_only=True, help_text="Portkey's virtual key."
    )
    gateway_config = serializers.JSONField(
        required=False,
        write_only=True,
        help_text="A Portkey config itself, as an object or its JSON; kept sealed. A saved one is the option"
        " portkey_config.",
    )
    options = serializers.DictField(required=False, help_text="Time-outs, retries, limits by purpose; Portkey.")


class EndpointPatch(EndpointIn):
    name = serializers.CharField(max_length=80, required=False)
    base_url = serializers.CharField(max_length=300, required=False)


class TestIn(Strict):
    model = serializers.CharField(max_length=120, required=False, allow_blank=True)
    save_options = serializers.BooleanField(
        required=False,
        help_text="Saves the options with which the service answers, where it refuses calls as they are.",
    )


class TestPart(Shape):
    name = serializers.ChoiceField(choices=["chat", "tools", "json", "stream"])
    ok = serializers.BooleanField()
    message = serializers.CharField()


class TestOut(Shape):
    ok = serializers.BooleanField()
    model = serializers.CharField()
    message = serializers.CharField()
    sample = serializers.CharField()
    latency_ms = serializers.IntegerField()
    cost_usd = serializers.FloatField()
    input_usd_per_million = serializers.FloatField(allow_null=True, help_text="Null where the model has no price.")
    output_usd_per_million = serializers.FloatField(allow_null=True)
    parts = TestPart(many=True, help_text="Each form in which jobs call the model.")
    options = serializers.DictField(
        help_text="The endpoint's options with those that its service needs; empty where it needs no others."
    )
    saved = serializers.BooleanField(help_text="Whether these options were saved.")

    computed = {
        "cost_usd": lambda found: dollars(found.cost_micros),
        "input_usd_per_million": lambda found: None if found.price is None else dollars(found.price.input_micros),
        "output_usd_per_million": lambda found: None if found.price is None else dollars(found.price.output_micros),
    }


NEW = OpenApiExample(
    "OpenAI",
    {"name": "OpenAI", "base_url": "https://api.openai.com/v1", "model": "gpt-4o-mini", "api_key": "sk-..."},
    request_only=True,
)


class ModelEndpointViewSet(ArchivableViewSet):
    queryset = ModelEndpoint.objects.none()
    lookup_value_converter = "uuid"
    operations = RowOperations(
        "a model endpoint",
        shapes=(EndpointOut, EndpointIn, EndpointPatch),
        reads=(partial(endpoints_visible, archived=True), endpoint_get),
        writes=(endpoint_create, endpoint_update, endpoint_archive),
    )
    documented = {
        "create": {"examples": [NEW]},
        "destroy": {"description": "Its keys are forgotten. Refused while agents use it."},
    }

    @extend_schema(summary="Try a model endpoint", request=TestIn, responses=TestOut)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: UUID) -> Response:
        """Makes a few small calls as a job does, paid for like any others: plain, with a tool, JSON, streamed."""
        values = parsed(TestIn, request.data)
        save = values.pop("save_options", False)
        endpoint = endpoint_get(self.actor, pk)
        return Response(TestOut(endpoint_test(self.actor, endpoint=endpoint, save=save, **values)).data)
