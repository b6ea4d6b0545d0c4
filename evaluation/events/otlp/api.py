"""OTLP over HTTP: receives traces of agents elsewhere from unmodified OpenTelemetry exporters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.rest.parsing import too_large
from agentcore_site.rest.throttling import BytesThrottle, KeyThrottle
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import require_somewhere
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp.logs import LOGS
from evaluation.events.otlp.protobuf import from_protobuf
from evaluation.events.otlp.span_intake import spans_receive
from evaluation.events.otlp.spans import ExportTooLarge, NotOtlp, ResourceSpans, from_json

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
AGENT: Final = OpenApiParameter(
    "X-AgentCore-Agent", str, OpenApiParameter.HEADER, description="The agent's slug, where its resource names none."
)

EXPORT: Final[dict[str, Any]] = {
    "parameters": [AGENT],
    "request": {PROTOBUF: OpenApiTypes.BINARY, JSON: OpenApiTypes.OBJECT},
    "responses": {(200, JSON): OpenApiTypes.OBJECT, (200, PROTOBUF): OpenApiTypes.BINARY},
}
NO_METRICS: Final = "Metrics are not kept here. OTEL_METRICS_EXPORTER=none saves sending them."


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


class _OtlpViewSet(ScopedViewSet):
    queryset = WaitingSpan.objects.none()
    tag = "events"
    idempotent = ()
    parser_classes = [ProtobufBytes, JsonBytes]
    throttle_classes = (KeyThrottle, BytesThrottle)
    blind = ("create",)

    def _received(self, request: Request, answer: Any, count: str, *, logs: bool = False) -> HttpResponse:
        """Stores an export. ``count``: the field of the answer for the number of rejected records."""
        exports = _exports(self._body(request), binary=_is_binary(request), logs=logs)
        taken = spans_receive(self.actor, exports, agent=request.headers.get("x-agentcore-agent", ""), logs=logs)
        if taken.rejected or taken.why:
            setattr(answer.partial_success, count, taken.rejected)
            answer.partial_success.error_message = taken.why
        return _answer(answer, binary=_is_binary(request))

    def _body(self, request: Request) -> bytes:
        body = request.data if isinstance(request.data, bytes) else b""
        if not body:
            raise Invalid("The body is empty: there is no export in it.")
        BytesThrottle().count(request, max(0, len(body) - int(request.META.get("CONTENT_LENGTH") or 0)))
        return body


class OtlpTraceViewSet(_OtlpViewSet):
    """Traces of agents that run elsewhere."""

    @extend_schema(
        summary="Send spans",
        description="OTLP over HTTP, binary or JSON, also packed: `OTEL_EXPORTER_OTLP_ENDPOINT` is this address without"
        " `/v1/traces`. A trace becomes a trajectory of the agent that its resource names by `service.name` or"
        " `agentcore.agent`. A key needs the scope `traces:write`, and no other.",
        **EXPORT,
    )
    def create(self, request: Request) -> HttpResponse:
        return self._received(request, ExportTraceServiceResponse(), "rejected_spans")


class OtlpLogViewSet(_OtlpViewSet):
    """Events of agents that run elsewhere, in the form of log records."""

    @extend_schema(
        summary="Send log records",
        description="As for spans. The events `gen_ai.*` join the span that they name; those of Claude Code, Codex and"
        " Gemini CLI become a trajectory for each prompt. Other records are not kept.",
        **EXPORT,
    )
    def create(self, request: Request) -> HttpResponse:
        return self._received(request, ExportLogsServiceResponse(), "rejected_log_records", logs=True)


class OtlpMetricViewSet(_OtlpViewSet):
    """Metrics of agents that run elsewhere, which are not kept."""

    @extend_schema(
        summary="Send metrics",
        description="Answered as accepted, so that exporters of all signals work. Nothing of it is read or kept.",
        **EXPORT,
    )
    def create(self, request: Request) -> HttpResponse:
        self._body(request)
        require_somewhere(self.actor, "trace.record")
        answer = ExportMetricsServiceResponse()
        answer.partial_success.error_message = NO_METRICS
        return _answer(answer, binary=_is_binary(request))


def _is_binary(request: Request) -> bool:
    return (request.content_type or "").split(";")[0].strip() == PROTOBUF


def _exports(body: bytes, *, binary: bool, logs: bool) -> list[ResourceSpans]:
    try:
        return from_protobuf(body, logs=logs) if binary else from_json(body, LOGS if logs else None)
    except NotOtlp as error:
        raise Invalid(str(error)) from error
    except ExportTooLarge as error:
        raise TooLarge(str(error)) from error


def _answer(answer: Message, *, binary: bool) -> HttpResponse:
    if binary:
        return HttpResponse(answer.SerializeToString(), content_type=PROTOBUF)
    return HttpResponse(json_format.MessageToJson(answer), content_type=JSON)
