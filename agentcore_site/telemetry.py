"""Structured logs, one JSON object a line, with the ids that tie a line to its request and job. The
tracer of requests and jobs sends spans to ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

from __future__ import annotations

import json
import logging
import re
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, set_span_in_context

from agentcore_site.lib import trace_context
from agentcore_site.lib.trace_context import TraceParent

log = logging.getLogger(__name__)
SERVICE: Final = "agentcore"
WAITING: Final = 16_384  # spans that may wait for the exporter; a large iteration makes them all at once
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


# Addresses that let their holder in: a reader of the log must not get them.
SECRET_PATHS: Final = re.compile(r"(/(?:shared|invitations)/)[^/\s\"'\\?#]+")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= trace_context.log_fields()
        # The framework logs an answer of 500 and above once the request's context has ended.
        if request_id := getattr(getattr(record, "request", None), "request_id", ""):
            line["request_id"] = request_id
        line |= {key: str(value) for key, value in vars(record).items() if key not in STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return SECRET_PATHS.sub(r"\1[cut]", json.dumps(line, ensure_ascii=False))


class OneLine(logging.Filter):
    """Takes the stack trace off what any client can cause at will, such as a request for a host that is not ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class NoErrorOfOurs(logging.Filter):
    """A budget that has no room (507) is what it was made for: its line is no error."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", None) == HTTPStatus.INSUFFICIENT_STORAGE:
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


def inside(trace: TraceParent | None) -> Context:
    """Context for a span that belongs to ``trace``; None: the span begins a trace."""
    if trace is None:
        return Context()
    own = SpanContext(int(trace.trace_id, 16), int(trace.span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(own), Context())


@cache
def tracer() -> Tracer | None:
    """The tracer of this process; None where tracing is off, or the SDK is not installed."""
    from django.conf import settings

    if not settings.OTEL_ENDPOINT:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set, but spans can't be sent: pip install 'agentcore[telemetry]'")
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
    exporter = OTLPSpanExporter(endpoint=f"{settings.OTEL_ENDPOINT.rstrip('/')}/v1/traces")
    # A collector that is away costs a thread its time, and never a job.
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=WAITING))
    return provider.get_tracer(SERVICE)
