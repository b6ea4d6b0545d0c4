"""Reads spans from a binary OTLP export. Pure, no Django. Only receivers load the protocol's classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaluation.events.otlp.spans import (
    DEEPEST,
    ERROR,
    NotOtlp,
    OtlpSpan,
    ResourceSpans,
    SpanEvent,
    finite,
    resource_of,
    span_of,
)


def from_protobuf(body: bytes) -> list[ResourceSpans]:
    """Raises NotOtlp."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise NotOtlp("The body is no ExportTraceServiceRequest.") from error
    found = []
    for resource in request.resource_spans:
        spans = [_of_message(span) for scope in resource.scope_spans for span in scope.spans]
        found.append(resource_of(_attributes(resource.resource.attributes), spans))
    return found


def _of_message(span: Any) -> OtlpSpan | None:
    failed = span.status.code == ERROR
    return span_of(
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        error=(span.status.message or "error") if failed else "",
        attributes=_attributes(span.attributes),
        events=tuple(SpanEvent(event.name, _attributes(event.attributes)) for event in span.events),
    )


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value, 0) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("value")
    if kind is None or depth > DEEPEST:
        return None
    if kind == "array_value":
        return [_value(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value, depth + 1) for pair in value.kvlist_value.values}
    found = getattr(value, kind)
    return found.hex() if isinstance(found, bytes) else finite(found)
