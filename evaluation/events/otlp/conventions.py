"""Information of a span about an agent, by the conventions of its field. Pure, no Django.

Supported are OpenTelemetry's semantic conventions for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/), the newer ones with messages as attributes and the older ones
with numbered attributes or events, and OpenInference (https://arize-ai.github.io/openinference/spec/). If a span has
both, the first are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import orjson

from evaluation.events.otlp.spans import OtlpSpan, SpanEvent

MOST_TOKENS: Final = 2**31 - 1
DETAILS: Final = "gen_ai.client.inference.operation.details"  # an event that carries what else are attributes
MESSAGE_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


class SpanKind(StrEnum):
    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"
    OTHER = "other"


OPERATIONS: Final = {
    "chat": SpanKind.MODEL,
    "text_completion": SpanKind.MODEL,
    "generate_content": SpanKind.MODEL,
    "completion": SpanKind.MODEL,
    "execute_tool": SpanKind.TOOL,
    "retrieval": SpanKind.TOOL,
    "invoke_agent": SpanKind.AGENT,
    "create_agent": SpanKind.AGENT,
    "invoke_workflow": SpanKind.AGENT,
    # openinference.span.kind and traceloop.span.kind
    "llm": SpanKind.MODEL,
    "tool": SpanKind.TOOL,
    "retriever": SpanKind.TOOL,
    "agent": SpanKind.AGENT,
    "chain": SpanKind.AGENT,
    "workflow": SpanKind.AGENT,
    "task": SpanKind.AGENT,
}
OF_A_SPAN: Final = ("trace", "id", "parent", "name", "began", "ended", "error")
FORMER_FIELDS: Final = {"told": "inputs", "said": "outputs"}  # in spans that an earlier release stored
SAYS_KIND: Final = ("gen_ai.operation.name", "openinference.span.kind", "llm.request.type", "traceloop.span.kind")


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
    a tool. ``cost_usd`` is None if the span has no cost.
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
    cost_usd: float | None = None
    inputs: tuple[SpanMessage, ...] = ()
    outputs: tuple[SpanMessage, ...] = ()
    tool: str = ""
    call: str = ""
    arguments: Any = None
    result: Any = None
    session: str = ""
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


def kind_of(span: OtlpSpan) -> SpanKind:
    for name in SAYS_KIND:
        if (found := OPERATIONS.get(str(span.attributes.get(name, "")).lower())) is not None:
            return found
    return SpanKind.OTHER


def read(span: OtlpSpan) -> AgentSpan:
    kind, about = kind_of(span), _with_details(span)
    session = _text(about, "gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id")
    common: dict[str, Any] = {name: getattr(span, name) for name in OF_A_SPAN} | {"kind": kind, "session": session}
    if kind is SpanKind.OTHER:
        return AgentSpan(**common)
    common |= {"inputs": _input_messages(about, span), "outputs": _output_messages(about, span)}
    if kind is SpanKind.TOOL:
        return AgentSpan(
            **common,
            tool=_text(about, "gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name,
            call=_text(about, "gen_ai.tool.call.id", "tool_call.id"),
            arguments=_parsed(
                _first(about, "gen_ai.tool.call.arguments", "tool.parameters", "input.value", "traceloop.entity.input")
            ),
            result=_parsed(_first(about, "gen_ai.tool.call.result", "output.value", "traceloop.entity.output")),
        )
    return AgentSpan(
        **common,
        model=_text(about, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        input_tokens=_count(about, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        output_tokens=_count(
            about, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
        ),
        cached_tokens=_count(
            about,
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
        cost_usd=_dollars(_first(about, "gen_ai.usage.cost", "operation.cost", "llm.cost.total")),
        settings=_settings(about),
    )


# -- messages ----------------------------------------------------------------------------------------------------------


def _input_messages(about: Mapping[str, Any], span: OtlpSpan) -> tuple[SpanMessage, ...]:
    system = [
        SpanMessage("system", text) for text in [_joined(_sequence(about.get("gen_ai.system_instructions")))] if text
    ]
    found = (
        _by_parts(about.get("gen_ai.input.messages"))
        or _numbered(about, "llm.input_messages", "message.")
        or _numbered(about, "gen_ai.prompt", "")
        or _of_events(span.events)
        or _whole(about, "user", "input.value", "traceloop.entity.input")
    )
    return (*system, *found)


def _output_messages(about: Mapping[str, Any], span: OtlpSpan) -> tuple[SpanMessage, ...]:
    return tuple(
        _by_parts(about.get("gen_ai.output.messages"))
        or _numbered(about, "llm.output_messages", "message.")
        or _numbered(about, "gen_ai.completion", "", role="assistant")
        or _choices(span.events)
        or _whole(about, "assistant", "output.value", "traceloop.entity.output")
    )


def _by_parts(value: Any) -> list[SpanMessage]:
    """Messages of parts: text, tool_call, tool_call_response."""
    return [_of_parts(one) for one in _sequence(value) if isinstance(one, Mapping)]


def _of_parts(message: Mapping[str, Any]) -> SpanMessage:
    parts = _sequence(message.get("parts"))
    calls = tuple(
        SpanToolCall(str(part.get("name", "")), _parsed(part.get("arguments")), str(part.get("id") or ""))
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "tool_call"
    )
    answers = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "tool_call_response"]
    text = _joined(parts)
    if answers and not text:
        text = "\n".join(_text_of(answer.get("response", answer.get("result"))) for answer in answers)
    return SpanMessage(str(message.get("role", "")), text, calls, str(answers[0].get("id") or "") if answers else "")


def _joined(parts: Iterable[Any]) -> str:
    """The texts among parts."""
    texts = (
        part if isinstance(part, str) else part.get("content") or part.get("text")
        for part in parts
        if isinstance(part, str) or (isinstance(part, Mapping) and part.get("type", "text") == "text")
    )
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _numbered(about: Mapping[str, Any], prefix: str, inner: str, *, role: str = "") -> list[SpanMessage]:
    """Messages whose fields are attributes of their own: ``prefix.0.message.content`` …"""
    found: dict[int, dict[str, Any]] = {}
    for name, value in about.items():
        number, _, rest = name[len(prefix) + 1 :].partition(".")
        if name.startswith(f"{prefix}.") and number.isdecimal() and len(number) < 6:
            found.setdefault(int(number), {})[rest.removeprefix(inner)] = value
    return [_of_fields(found[number], role) for number in sorted(found)]


def _of_fields(fields: Mapping[str, Any], role: str) -> SpanMessage:
    calls: dict[int, dict[str, Any]] = {}
    contents = []
    for name, value in fields.items():
        first, _, rest = name.partition(".")
        number, _, last = rest.partition(".")
        if first == "tool_calls" and number.isdecimal() and len(number) < 6:
            calls.setdefault(int(number), {})[last.removeprefix("tool_call.").removeprefix("function.")] = value
        elif first == "contents" and last in ("message_content.text", "text"):
            contents.append(str(value))
    return SpanMessage(
        role=str(fields.get("role") or role),
        text=_text_of(fields.get("content")) if fields.get("content") is not None else "\n".join(contents),
        calls=tuple(
            SpanToolCall(str(one.get("name", "")), _parsed(one.get("arguments")), str(one.get("id") or ""))
            for _, one in sorted(calls.items())
        ),
        call=str(fields.get("tool_call_id") or ""),
    )


def _of_events(events: Sequence[SpanEvent]) -> list[SpanMessage]:
    return [
        SpanMessage(role, _text_of(event.attributes.get("content")), call=str(event.attributes.get("id") or ""))
        for event in events
        if (role := MESSAGE_EVENTS.get(event.name)) is not None
    ]


def _choices(events: Sequence[SpanEvent]) -> list[SpanMessage]:
    found = []
    for event in events:
        if event.name == "gen_ai.choice":
            message = _parsed(event.attributes.get("message", event.attributes.get("content")))
            body = message if isinstance(message, Mapping) else {"content": message}
            found.append(SpanMessage("assistant", _text_of(body.get("content")), _openai_calls(body.get("tool_calls"))))
    return found


def _openai_calls(value: Any) -> tuple[SpanToolCall, ...]:
    functions = [(one.get("function"), one.get("id")) for one in _sequence(value) if isinstance(one, Mapping)]
    return tuple(
        SpanToolCall(str(one.get("name", "")), _parsed(one.get("arguments")), str(id or ""))
        for one, id in functions
        if isinstance(one, Mapping)
    )


def _whole(about: Mapping[str, Any], role: str, *names: str) -> list[SpanMessage]:
    value = _first(about, *names)
    return [] if value in (None, "") else [SpanMessage(role, _text_of(value))]


def _with_details(span: OtlpSpan) -> Mapping[str, Any]:
    """A span's attributes with those of the event that carries messages."""
    return {
        name: value
        for part in (*(event.attributes for event in span.events if event.name == DETAILS), span.attributes)
        for name, value in part.items()
    }


# -- values ------------------------------------------------------------------------------------------------------------


def _first(about: Mapping[str, Any], *names: str) -> Any:
    return next((about[name] for name in names if about.get(name) is not None), None)


def _text(about: Mapping[str, Any], *names: str) -> str:
    found = _first(about, *names)
    return "" if found is None else str(found)


def _count(about: Mapping[str, Any], *names: str) -> int:
    found = _first(about, *names)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0
    return max(0, min(int(found), MOST_TOKENS))


def _dollars(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6
    return float(value) if known else None


def _settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings, and the finish reasons of its answers (``finish``, a list)."""
    names = ("temperature", "top_p", "max_tokens", "seed")
    given = _parsed(about.get("llm.invocation_parameters"))
    others = given if isinstance(given, Mapping) else {}
    found = {name: about.get(f"gen_ai.request.{name}", others.get(name)) for name in names}
    found["finish"] = _finished(about)
    return {name: value for name, value in found.items() if value is not None}


def _finished(about: Mapping[str, Any]) -> list[str] | None:
    answers = _sequence(about.get("gen_ai.output.messages"))
    found = (
        _sequence(about.get("gen_ai.response.finish_reasons"))
        or [answer.get("finish_reason") for answer in answers if isinstance(answer, Mapping)]
        or [about.get("gen_ai.completion.0.finish_reason")]
    )
    return [one for one in found if isinstance(one, str)] or None


def _parsed(value: Any) -> Any:
    """A text's value if it is JSON; another text unchanged."""
    if isinstance(value, str) and value[:1] in '{["':
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _sequence(value: Any) -> Sequence[Any]:
    found = _parsed(value)
    return found if isinstance(found, list) else []


def _text_of(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
