"""Reads spans from a binary OTLP export. Pure, no Django. Only receivers load the protocol's classes.

Spans are parsed one by one: of two bytes that say "an empty span" the protocol's classes make an object of a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evaluation.events.otlp.logs import span_of_log
from evaluation.events.otlp.spans import (
    DEEPEST,
    ERROR,
    MOST_ATTRIBUTES,
    MOST_SPANS,
    NO_WORDS,
    ExportTooLarge,
    NotOtlp,
    OtlpSpan,
    ResourceSpans,
    SpanEvent,
    finite,
    resource_of,
    span_of,
)

MOST_SPAN_BYTES: Final = 2 * 2**20  # with attributes that are not kept
MOST_FIELDS: Final = 10 * MOST_SPANS  # of resources and scopes, each span among them
BROKEN: Final = "The body is no ExportTraceServiceRequest."
BROKEN_LOGS: Final = "The body is no ExportLogsServiceRequest."
# Numbers of fields: ExportTraceServiceRequest.resource_spans; ResourceSpans.resource and scope_spans; ScopeSpans.spans.
RESOURCE_SPANS, RESOURCE, SCOPE_SPANS, SPANS = 1, 1, 2, 2
VARINT, LENGTH = 0, 2  # wire types
FIXED: Final = {1: 8, 5: 4}  # the others: bytes by wire type


def from_protobuf(body: bytes, *, logs: bool = False) -> list[ResourceSpans]:
    """Reads an export of traces, or of ``logs``, whose messages have the same numbers down to the single record.
    Raises NotOtlp, ExportTooLarge."""
    try:
        return list(_Export(body, logs=logs).resources())
    except DecodeError as error:
        raise NotOtlp(BROKEN_LOGS if logs else BROKEN) from error


class _Export:
    """A body with the number of its fields and attributes that were read so far."""

    def __init__(self, body: bytes, *, logs: bool) -> None:
        self._body, self._fields_read, self._attributes_read = body, 0, 0
        self._broken = BROKEN_LOGS if logs else BROKEN
        self._record = self._log if logs else self._span

    def resources(self) -> Iterator[ResourceSpans]:
        """Raises NotOtlp, ExportTooLarge, DecodeError."""
        for number, start, end in self._fields(0, len(self._body)):
            if number == RESOURCE_SPANS:
                yield self._resource(start, end)

    def _resource(self, start: int, end: int) -> ResourceSpans:
        own = b""
        spans: list[OtlpSpan | None] = []
        large = 0
        for number, first, last in self._fields(start, end):
            if number == RESOURCE:
                own += self._body[first:last]  # one that comes twice is merged, as the protocol says
                if len(own) > MOST_SPAN_BYTES:
                    raise ExportTooLarge(f"A resource has at most {MOST_SPAN_BYTES >> 20} MB.")
            elif number == SCOPE_SPANS:
                for inner, at, until in self._fields(first, last):
                    if inner == SPANS and until - at > MOST_SPAN_BYTES:
                        large += 1
                    elif inner == SPANS:
                        spans.append(self._record(self._body[at:until]))
        return resource_of(self._attributes(Resource.FromString(own).attributes), spans, large)

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Number, start and end of each message or text between two places. Raises NotOtlp, ExportTooLarge."""
        while at < end:
            self._fields_read += 1
            if self._fields_read > MOST_FIELDS:
                raise ExportTooLarge(f"An export has at most {MOST_SPANS:,} spans. Send smaller batches.")
            tag, at = self._varint(at, end)
            wire = tag & 7
            if wire == LENGTH:
                length, at = self._varint(at, end)
                start, at = at, at + length
                if at > end:
                    raise NotOtlp(self._broken)
                yield tag >> 3, start, at
            elif wire == VARINT:
                _, at = self._varint(at, end)
            elif wire in FIXED:
                at += FIXED[wire]
            else:
                raise NotOtlp(self._broken)
        if at != end:
            raise NotOtlp(self._broken)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number of seven bits a byte, and the place after it. Raises NotOtlp."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                break
            byte = self._body[at]
            value, at = value | (byte & 127) << shift, at + 1
            if byte < 128:
                return value, at
        raise NotOtlp(self._broken)

    def _log(self, body: bytes) -> OtlpSpan | None:
        record: Any = LogRecord.FromString(body)
        return span_of_log(
            trace=record.trace_id.hex(),
            span=record.span_id.hex(),
            name=record.event_name,
            at=record.time_unix_nano or record.observed_time_unix_nano,
            body=self._value(record.body, 0),
            attributes=self._attributes(record.attributes),
        )

    def _span(self, body: bytes) -> OtlpSpan | None:
        span: Any = Span.FromString(body)
        failed = span.status.code == ERROR
        return span_of(
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            name=span.name,
            began=span.start_time_unix_nano,
            ended=span.end_time_unix_nano,
            error=(span.status.message or NO_WORDS) if failed else "",
            attributes=self._attributes(span.attributes),
            events=tuple(
                SpanEvent(event.name, self._attributes(event.attributes)) for event in self._counted(span.events)
            ),
        )

    def _attributes(self, pairs: Any) -> dict[str, Any]:
        return {pair.key: self._value(pair.value, 0) for pair in self._counted(pairs)}

    def _counted(self, values: Any) -> Iterable[Any]:
        """Raises ExportTooLarge."""
        self._attributes_read += len(values)
        if self._attributes_read > MOST_ATTRIBUTES:
            raise ExportTooLarge(f"An export has at most {MOST_ATTRIBUTES:,} attributes. Send smaller batches.")
        found: Iterable[Any] = values
        return found

    def _value(self, value: Any, depth: int) -> Any:
        kind = value.WhichOneof("value")
        if kind is None or depth > DEEPEST:
            return None
        if kind == "array_value":
            return [self._value(one, depth + 1) for one in self._counted(value.array_value.values)]
        if kind == "kvlist_value":
            return {pair.key: self._value(pair.value, depth + 1) for pair in self._counted(value.kvlist_value.values)}
        found = getattr(value, kind)
        return found.hex() if isinstance(found, bytes) else finite(found)
