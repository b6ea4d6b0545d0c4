"""Reads spans from an OTLP export in JSON; ``events.otlp.protobuf`` reads binary ones. Pure, no Django.

The format is OpenTelemetry's protocol 1.x: https://opentelemetry.io/docs/specs/otlp/. In JSON ids are hexadecimal, and
64-bit integers may be texts. Ids in base64 and names in snake case, as writers of protocol buffers' own JSON have them,
are read too.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agentcore_site.lib.json_values import most_values

ERROR: Final = 2  # of a status
NO_WORDS: Final = "error"  # of a failure whose status says no more
DEEPEST: Final = 20  # lists and objects within an attribute
NANOS: Final = 1_000_000_000
LATEST: Final = 2**63  # nanoseconds since the epoch: in the year 2262
NO_PARENT: Final = "0" * 16
MOST_SPANS: Final = 8_192  # of one export: as many as a Collector sends in a batch by default
MOST_ATTRIBUTES: Final = 500_000  # of one export, with the values within them: they take up to 150 bytes of memory each
MOST_JSON_VALUES: Final = 3 * MOST_ATTRIBUTES  # an attribute in JSON is three values


class NotOtlp(ValueError):
    """A body that is not an export; the message names the place."""


class ExportTooLarge(ValueError):
    """An export of more than is read at once; the message says what to change."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OtlpSpan:
    """One operation. Ids are lower-case hexadecimal, ``parent`` "" for a root; times are seconds since the epoch.
    ``error`` is the status message of a failure, or a stand-in for an empty one; "" without failure."""

    trace: str
    id: str
    parent: str
    name: str
    began: float
    ended: float
    error: str
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceSpans:
    """The spans of one program, and its own attributes (``service.name`` …). ``broken``: number of spans without the
    required ids or times. ``large``: number of spans that were not read because of their size."""

    attributes: Mapping[str, Any]
    spans: tuple[OtlpSpan, ...]
    broken: int
    large: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """A kind of export: the names of its members in JSON, and the reading of one record."""

    name: str
    resources: str
    scopes: tuple[str, ...]  # the later ones are of older versions of the protocol
    records: str
    read: Callable[[Mapping[str, Any]], OtlpSpan | None]


def from_json(body: bytes, kind: Signal | None = None) -> list[ResourceSpans]:
    """An export of traces, or of another kind. Raises NotOtlp, ExportTooLarge."""
    kind = kind or TRACES
    if most_values(body) > MOST_JSON_VALUES:
        raise ExportTooLarge(f"An export in JSON has at most {MOST_JSON_VALUES:,} values. Send smaller batches.")
    try:
        request = _in_camel_case(orjson.loads(body))
        _belongs(request, kind)
        found = []
        for resource in list_of(request, kind.resources):
            own = object_of(resource, "resource")
            scopes = [scope for name in kind.scopes for scope in list_of(resource, name)]
            spans = [kind.read(span) for scope in scopes for span in list_of(scope, kind.records)]
            found.append(resource_of(json_attributes(list_of(own, "attributes")), spans))
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError, RecursionError) as error:
        raise NotOtlp(f"The body is no export of {kind.name} in JSON: {error}") from error
    return found


def _belongs(request: Any, kind: Signal) -> None:
    """Raises ValueError: the export is of another signal, or of none."""
    if not isinstance(request, Mapping) or kind.resources in request or not request:
        return
    address = next((address for name, address in ADDRESSES.items() if name in request), "")
    raise ValueError(f"it has no {kind.resources}" + (f". Send it to {address}" if address else ""))


def _in_camel_case(request: Any) -> Any:
    """An export whose names are in snake case, by the names of the protocol; any other as it is."""
    snakes = isinstance(request, Mapping) and any(name in SNAKES for name in request)
    return _renamed(request) if snakes else request


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, one in value.items():
        first, *rest = str(name).split("_")
        found[first + "".join(part.capitalize() for part in rest)] = _renamed(one)
    return found


def resource_of(attributes: Mapping[str, Any], spans: list[OtlpSpan | None], large: int = 0) -> ResourceSpans:
    whole = tuple(span for span in spans if span is not None)
    return ResourceSpans(attributes, whole, len(spans) - len(whole), large)


# -- JSON --------------------------------------------------------------------------------------------------------------


def _of_json(span: Mapping[str, Any]) -> OtlpSpan | None:
    status = object_of(span, "status")
    failed = status.get("code") in (ERROR, str(ERROR), "STATUS_CODE_ERROR")
    return span_of(
        trace=json_id(span.get("traceId"), 16),
        id=json_id(span.get("spanId"), 8),
        parent=json_id(span.get("parentSpanId"), 8),
        name=str(span.get("name", "")),
        began=int(span.get("startTimeUnixNano", 0)),
        ended=int(span.get("endTimeUnixNano", 0)),
        error=str(status.get("message") or NO_WORDS) if failed else "",
        attributes=json_attributes(list_of(span, "attributes")),
        events=tuple(
            SpanEvent(str(event.get("name", "")), json_attributes(list_of(event, "attributes")))
            for event in list_of(span, "events")
        ),
    )


TRACES: Final = Signal("traces", "resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), "spans", _of_json)
ADDRESSES: Final = {"resourceSpans": "/v1/traces", "resourceLogs": "/v1/logs", "resourceMetrics": "/v1/metrics"}
SNAKES: Final = frozenset({"resource_spans", "resource_logs", "resource_metrics"})


def json_id(value: Any, length: int) -> str:
    """An id of ``length`` bytes in small hexadecimal, which may be base64; what is neither stays."""
    text = str(value or "")
    if len(text) == (length + 2) // 3 * 4 and text.endswith("="):
        try:
            return base64.b64decode(text, validate=True).hex()
        except binascii.Error:
            pass
    return text.lower()


def json_attributes(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(pair["key"]): json_value(pair.get("value"), 0) for pair in pairs}


def json_value(value: Any, depth: int) -> Any:
    if not isinstance(value, Mapping) or depth > DEEPEST:
        return None
    for kind, found in value.items():
        if kind in ("intValue", "doubleValue"):
            try:
                return int(found) if kind == "intValue" else finite(float(found))
            except (TypeError, ValueError, OverflowError):  # one odd value costs no export
                return None
        if kind == "arrayValue":
            return [json_value(one, depth + 1) for one in list_of(found, "values")]
        if kind == "kvlistValue":
            return {str(pair["key"]): json_value(pair.get("value"), depth + 1) for pair in list_of(found, "values")}
        if kind in ("stringValue", "boolValue", "bytesValue"):
            return found if isinstance(found, str | bool) else str(found)
    return None


def list_of(owner: Any, name: str) -> list[Any]:
    found = owner.get(name) if isinstance(owner, Mapping) else _refuse(owner)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"{name} is a list")
    return found


def object_of(owner: Any, name: str) -> Mapping[str, Any]:
    found = owner.get(name) if isinstance(owner, Mapping) else _refuse(owner)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is an object")
    return found


def _refuse(owner: Any) -> Any:
    raise ValueError(f"an object was expected, and {type(owner).__name__} is there")


# -- both --------------------------------------------------------------------------------------------------------------


def span_of(*, trace: str, id: str, parent: str, began: int, ended: int, **more: Any) -> OtlpSpan | None:
    """None if a required field is missing. A span whose clock was set back took no time."""
    if parent == NO_PARENT:
        parent = ""
    moments = 0 < began < LATEST and 0 < ended < LATEST
    if not (_is_id(trace, 32) and _is_id(id, 16) and (not parent or _is_id(parent, 16)) and moments):
        return None
    ended = max(began, ended)
    return OtlpSpan(trace=trace, id=id, parent=parent, began=began / NANOS, ended=ended / NANOS, **more)


def _is_id(value: str, length: int) -> bool:
    return len(value) == length and value.strip("0") != "" and all(one in "0123456789abcdef" for one in value)


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
