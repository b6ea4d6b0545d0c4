"""Log records about agents as spans. Pure, no Django.

Some instrumentations send the words of a model call beside its span, as events of the log: they join it. Coding agents
(``events.otlp.coding_agents``) send nothing else than events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from evaluation.events.otlp.coding_agents import PREFIXES, span_of_event
from evaluation.events.otlp.conventions import CHOICE, DETAILS, LOGGED, MESSAGE_EVENTS
from evaluation.events.otlp.spans import OtlpSpan, Signal, json_attributes, json_id, json_value, list_of, span_of


def span_of_log(
    *, trace: str, span: str, name: str, at: int, body: Any, attributes: Mapping[str, Any]
) -> OtlpSpan | None:
    """The span that a record says something of, or that it is itself; None: it is not about an agent. ``at``:
    nanoseconds since the epoch."""
    event = name or str(attributes.get("event.name") or "")
    raw = orjson.dumps([trace, span, event, at, body, attributes], default=str)
    id = hashlib.sha256(raw).hexdigest()[:16]
    if event in MESSAGE_EVENTS or event in (CHOICE, DETAILS):
        said = {key: value for key, value in attributes.items() if key != "gen_ai.operation.name"}
        return span_of(
            trace=trace,
            id=id,
            parent=span or "no span",
            began=at,
            ended=at,
            name=event,
            error="",
            attributes={**said, LOGGED: event, "body": body},
        )
    whole = isinstance(body, str) and body.startswith(PREFIXES)  # Claude Code's event is "user_prompt" alone
    return span_of_event(str(body) if whole else event, attributes, id=id, at=at)


def _of_json(record: Mapping[str, Any]) -> OtlpSpan | None:
    return span_of_log(
        trace=json_id(record.get("traceId"), 16),
        span=json_id(record.get("spanId"), 8),
        name=str(record.get("eventName") or ""),
        at=int(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or 0),
        body=json_value(record.get("body"), 0),
        attributes=json_attributes(list_of(record, "attributes")),
    )


LOGS: Final = Signal("logs", "resourceLogs", ("scopeLogs", "instrumentationLibraryLogs"), "logRecords", _of_json)
