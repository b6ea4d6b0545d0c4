"""The information of a span about an agent. Pure, no Django."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import orjson

FORMER_FIELDS: Final = {"told": "inputs", "said": "outputs"}  # in spans that an earlier release stored


class SpanKind(StrEnum):
    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"
    MESSAGES = "messages"  # of the span that is its parent, from a log
    OTHER = "other"


SILENT: Final = frozenset({SpanKind.OTHER, SpanKind.MESSAGES})  # make no trajectory by themselves


@dataclass(frozen=True, slots=True)
class SpanToolCall:
    name: str
    arguments: Any
    id: str = ""


@dataclass(frozen=True, slots=True)
class SpanMessage:
    """One message of a conversation; ``call`` is the id of the tool call that it answers."""

    role: str
    text: str
    calls: tuple[SpanToolCall, ...] = ()
    call: str = ""


@dataclass(frozen=True, slots=True)
class AgentSpan:
    """The information of a span about an agent; its other content is left out.
    ``inputs`` and ``outputs`` are the messages of a model; ``tool``, ``arguments`` and ``result`` those of
    a tool. ``cached_tokens`` and ``cache_written_tokens`` are part of ``input_tokens``. ``cost_usd`` is None if the
    span has no cost, ``response_id`` is the provider's name of a call.
    """

    trace: str
    id: str
    parent: str
    name: str
    began: float
    ended: float
    error: str
    kind: SpanKind
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    cost_usd: float | None = None
    inputs: tuple[SpanMessage, ...] = ()
    outputs: tuple[SpanMessage, ...] = ()
    tool: str = ""
    call: str = ""
    arguments: Any = None
    result: Any = None
    session: str = ""
    response_id: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        values = {FORMER_FIELDS.get(name, name): value for name, value in stored.items()}
        messages = {name: tuple(map(_message, values[name])) for name in ("inputs", "outputs")}
        return cls(**{**values, **messages, "kind": SpanKind(values["kind"])})


def _message(stored: Mapping[str, Any]) -> SpanMessage:
    return SpanMessage(**{**stored, "calls": tuple(SpanToolCall(**call) for call in stored["calls"])})
