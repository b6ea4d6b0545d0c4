"""Ids of the present work, which connect log lines, spans and calls of ours.

A trace is passed on by W3C's ``traceparent`` (https://www.w3.org/TR/trace-context/): from a client through the request
that launches a job to the worker, and from there to the model's service.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final
from uuid import UUID

HEADER: Final = "traceparent"
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """``trace_id``: 32 hexadecimal digits; ``span_id``: 16, the parent span."""

    trace_id: str
    span_id: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
_trace: ContextVar[TraceParent | None] = ContextVar("trace", default=None)
_fields: ContextVar[Mapping[str, str]] = ContextVar("log_fields", default={})  # noqa: B039  (a mapping: never written)


def request_id_of(given: str) -> str:
    """The caller's own id of a request if valid, else a new one."""
    return given if _NAME.match(given) else secrets.token_hex(8)


def parsed(header: str) -> TraceParent | None:
    """None: the header is invalid, or has only zeros, which the standard forbids."""
    found = _FORM.fullmatch(header.strip().lower())
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceParent(found[1], found[2])


def begun() -> TraceParent:
    """A new trace."""
    return TraceParent(secrets.token_hex(16), secrets.token_hex(8))


def of_job(job_id: UUID, given: str) -> TraceParent:
    """The trace of the request that launched the job; without one, a trace derived from the job's id."""
    return parsed(given) or TraceParent(job_id.hex, job_id.hex[16:])


def current() -> TraceParent | None:
    return _trace.get()


def log_fields() -> dict[str, str]:
    """Fields of each log line here."""
    trace, request = _trace.get(), request_id.get()
    ids = {"request_id": request} if request else {}
    return ids | dict(_fields.get()) | ({"trace_id": trace.trace_id} if trace else {})


@contextmanager
def work(trace: TraceParent, **fields: str) -> Iterator[None]:
    """Work inside belongs to ``trace``; log lines carry ``fields``, also those of tasks begun here."""
    before_trace, before = _trace.set(trace), _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(before)
        _trace.reset(before_trace)


def log_field(name: str, value: object) -> None:
    """Sets one more field for the rest of this ``work``."""
    _fields.set({**_fields.get(), name: str(value)})
