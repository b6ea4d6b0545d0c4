"""OTLP over HTTP: receives traces of agents elsewhere from unmodified OpenTelemetry exporters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.rest.parsing import too_large
from agentcore_site.rest.throttling import BytesThrottle, KeyThrottle
from agentcore_site.rest.views import ScopedViewSet
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp.protobuf import from_protobuf
from evaluation.events.otlp.span_intake import SpansTaken, spans_receive
from evaluation.events.otlp.spans import ExportTooLarge, NotOtlp, ResourceSpans, from_json

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
AGENT: Final = OpenApiParameter(
    "X-AgentCore-Agent", str, OpenApiParameter.HEADER, description="The agent's slug, where its resource names none."
)


class BytesParser(BaseParser):
    """Leaves the body unparsed."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        found = stream.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        if len(found) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise too_large()
        return found


class ProtobufBytes(BytesParser):
    media_type = PROTOBUF


class JsonBytes(BytesParser):
    media_type = JSON


class OtlpTraceViewSet(ScopedViewSet):
    """Traces of agents that run elsewhere."""

    queryset = WaitingSpan.objects.none()
    tag = "events"
    idempotent = ()
    parser_classes = [ProtobufBytes, JsonBytes]
    throttle_classes = (KeyThrottle, BytesThrottle)
    blind = ("create",)

    @extend_schema(
        summary="Send spans",
        description="OTLP over HTTP, binary or JSON, also packed: `OTEL_EXPORTER_OTLP_ENDPOINT` is this address without"
        " `/v1/traces`. A trace becomes a trajectory of the agent that its resource names by `service.name` or"
        " `agentcore.agent`. A key needs the scope `traces:write`, and no other.",
        parameters=[AGENT],
        request={PROTOBUF: OpenApiTypes.BINARY, JSON: OpenApiTypes.OBJECT},
        responses={(200, JSON): OpenApiTypes.OBJECT, (200, PROTOBUF): OpenApiTypes.BINARY},
    )
    def create(self, request: Request) -> HttpResponse:
        binary = (request.content_type or "").split(";")[0].strip() == PROTOBUF
        body = request.data if isinstance(request.data, bytes) else b""
        if not body:
            raise Invalid("The body is empty: there is no export in it.")
        BytesThrottle().count(request, max(0, len(body) - int(request.META.get("CONTENT_LENGTH") or 0)))
        taken = spans_receive(
            self.actor,
            _exports(body, binary=binary),
            agent=request.headers.get("x-agentcore-agent", ""),
        )
        return _answer(taken, binary=binary)


def _exports(body: bytes, *, binary: bool) -> list[ResourceSpans]:
    try:
        return from_protobuf(body) if binary else from_json(body)
    except NotOtlp as error:
        raise Invalid(str(error)) from error
    except ExportTooLarge as error:
        raise TooLarge(str(error)) from error


def _answer(taken: SpansTaken, *, binary: bool) -> HttpResponse:
    answer = ExportTraceServiceResponse()
    if taken.rejected or taken.why:
        answer.partial_success.rejected_spans = taken.rejected
        answer.partial_success.error_message = taken.why
    if binary:
        return HttpResponse(answer.SerializeToString(), content_type=PROTOBUF)
    return HttpResponse(json_format.MessageToJson(answer), content_type=JSON)
