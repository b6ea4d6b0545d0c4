"""Information of a span about an agent, by the conventions of its field. Pure, no Django.

Supported are OpenTelemetry's semantic conventions for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/). The newer ones have messages as attributes, the older ones as
numbered attributes, events or logs. Supported too are OpenInference
(https://arize-ai.github.io/openinference/spec/) and ``events.otlp.dialects``. OpenTelemetry's names win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from budgets.llm.usage import as_number
from evaluation.events.otlp.agent_spans import AgentSpan, SpanKind, SpanMessage
from evaluation.events.otlp.dialects import as_genai
from evaluation.events.otlp.messages import (
    arguments_of,
    joined,
    listed,
    message_of,
    messages_of,
    openai_calls,
    parsed,
    result_of,
    sequence,
    text_of,
)
from evaluation.events.otlp.spans import NO_WORDS, OtlpSpan, SpanEvent

MOST_TOKENS: Final = 2**31 - 1
DETAILS: Final = "gen_ai.client.inference.operation.details"  # an event that carries what else are attributes
CHOICE: Final = "gen_ai.choice"
MESSAGE_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
CONTENTS: Final = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
ASKED: Final = ("input.value", "traceloop.entity.input", "gen_ai.prompt", "llm.prompts", "pydantic_ai.all_messages")
ANSWERED: Final = ("output.value", "traceloop.entity.output", "gen_ai.completion", "llm.responses", "final_result")
# ``tool.parameters`` is the schema in OpenInference's specification, and in some senders the arguments.
ARGUMENTS: Final = (
    *("gen_ai.tool.call.arguments", "tool_arguments", "gcp.vertex.agent.tool_call_args", *ASKED, "tool.parameters"),
)
RESULTS: Final = ("gen_ai.tool.call.result", "tool_response", "gcp.vertex.agent.tool_response", *ANSWERED)
EVENTS: Final = ("events", "all_messages_events")  # attributes that hold a list of events (pydantic-ai)
LOGGED: Final = "agentcore.log.event"  # the name of the log record that a span was made of
# Of a call whose sender names no operation:
SIGNS: Final = ("gen_ai.response.model", "gen_ai.response.id", "gen_ai.usage.input_tokens")
UNNAMED_SIGNS: Final = (*SIGNS, "gen_ai.output.messages", "gen_ai.completion.0.content", "gen_ai.completion.0.role")
NO_MODEL: Final = ("embedding", "embeddings", "rerank", "event", "evaluator", "guardrail", "prompt", "parser")


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
OF_AN_AGENT: Final = frozenset({"pydantic_ai.all_messages", "all_messages_events", "final_result"})
MERGED: Final = "(merged"  # Google's ADK writes a span for calls at once beside those of each
OF_A_SPAN: Final = ("trace", "id", "parent", "name", "began", "ended", "error")
SAYS_KIND: Final = ("gen_ai.operation.name", "openinference.span.kind", "llm.request.type", "traceloop.span.kind")


def kind_of(span: OtlpSpan) -> SpanKind:
    return _kind(as_genai(span.attributes))


def _kind(about: Mapping[str, Any]) -> SpanKind:
    if str(about.get("gen_ai.tool.name", "")).startswith(MERGED):
        return SpanKind.OTHER
    for name in SAYS_KIND:
        if (found := OPERATIONS.get(str(about.get(name, "")).lower())) is not None:
            return found
    if LOGGED in about:
        return SpanKind.MESSAGES
    if "gen_ai.tool.name" in about:
        return SpanKind.TOOL
    if not OF_AN_AGENT.isdisjoint(about):
        return SpanKind.AGENT
    named = str(next((about[name] for name in SAYS_KIND if about.get(name)), ""))
    signs = SIGNS if named else UNNAMED_SIGNS
    shown = named.lower() not in NO_MODEL and any(name in about for name in signs)  # perhaps by a name of its own
    return SpanKind.MODEL if shown else SpanKind.OTHER


def read(span: OtlpSpan) -> AgentSpan:
    about = as_genai(_with_details(span))
    kind, events = _kind(about), (*span.events, *_events(about))
    session = _text(
        about, "gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id", "thread.id"
    )
    common: dict[str, Any] = {name: getattr(span, name) for name in OF_A_SPAN} | {"kind": kind, "session": session}
    if kind is SpanKind.OTHER:
        return AgentSpan(**common)
    common["error"] = _error(span) or _text(about, "error.message")
    if kind is SpanKind.MESSAGES:
        events = (SpanEvent(str(about[LOGGED]), about),)
        return AgentSpan(**common, inputs=tuple(_inputs(about, events)), outputs=tuple(_outputs(about, events)))
    common |= {"inputs": tuple(_inputs(about, events)), "outputs": tuple(_outputs(about, events))}
    if kind is SpanKind.TOOL:
        return AgentSpan(
            **common,
            tool=_text(about, "gen_ai.tool.name", "tool.name", "traceloop.entity.name") or span.name,
            call=_text(about, "gen_ai.tool.call.id", "tool_call.id"),
            arguments=arguments_of(_said(about, ARGUMENTS, span, "gen_ai.tool.message", "content")),
            result=result_of(_said(about, RESULTS, span, CHOICE, "message")),
        )
    return AgentSpan(
        **common,
        model=_text(
            about,
            *("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "llm.response.model"),
            "llm.request.model",
        ),
        input_tokens=_count(
            about,
            *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
            "llm.usage.prompt_tokens",
        ),
        output_tokens=_count(
            about,
            *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
            "llm.usage.completion_tokens",
        ),
        cached_tokens=_count(
            about,
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.details.cache_read_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
        cache_written_tokens=_count(
            about,
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.details.cache_write_tokens",
            "llm.token_count.prompt_details.cache_write",
        ),
        cost_usd=_dollars(_first(about, "gen_ai.usage.cost", "operation.cost", "llm.cost.total")),
        response_id=_response_id(about),
        settings=_settings(about),
    )


# -- messages ----------------------------------------------------------------------------------------------------------


def _inputs(about: Mapping[str, Any], events: Sequence[SpanEvent]) -> list[SpanMessage]:
    system = [
        SpanMessage("system", text) for text in [joined(sequence(about.get("gen_ai.system_instructions")))] if text
    ]
    found = (
        listed(about.get("gen_ai.input.messages"), "user")
        or _numbered(about, "llm.input_messages", "message.")
        or _numbered(about, "gen_ai.prompt", "")
        or _numbered(about, "llm.prompts", "")
        or [
            message_of({"content": None, **_body(one)}, MESSAGE_EVENTS[one.name])
            for one in events
            if one.name in MESSAGE_EVENTS
        ]
        or messages_of(_first(about, *ASKED, "gcp.vertex.agent.llm_request"), "user")
    )
    return system + found


def _outputs(about: Mapping[str, Any], events: Sequence[SpanEvent]) -> list[SpanMessage]:
    return (
        listed(about.get("gen_ai.output.messages"), "assistant")
        or _numbered(about, "llm.output_messages", "message.")
        or _numbered(about, "gen_ai.completion", "", role="assistant")
        or _numbered(about, "llm.completions", "", role="assistant")
        or [_choice(_body(one)) for one in events if one.name == CHOICE]
        or messages_of(_first(about, *ANSWERED, "gcp.vertex.agent.llm_response"), "assistant")
    )


def _body(event: SpanEvent) -> Mapping[str, Any]:
    """An event's fields: of a log they are its body."""
    body = parsed(_first(event.attributes, "body", "gen_ai.event.content"))
    found = {**event.attributes, **(body if isinstance(body, Mapping) else {})}
    return found | {"tool_call_id": found.get("tool_call_id") or found.get("id")}


def _events(about: Mapping[str, Any]) -> list[SpanEvent]:
    """The events of an attribute."""
    listed = next((found for name in EVENTS if (found := sequence(about.get(name)))), ())
    return [SpanEvent(str(one.get("event.name", "")), one) for one in listed if isinstance(one, Mapping)]


def _error(span: OtlpSpan) -> str:
    """The words of a failure; of a status without any those of the exception."""
    if span.error != NO_WORDS:
        return span.error
    said = (_text(event.attributes, "exception.message", "exception.type") for event in span.events)
    return next(filter(None, said), span.error)


def _said(about: Mapping[str, Any], names: Sequence[str], span: OtlpSpan, event: str, field: str) -> Any:
    """Input or output of a tool: an attribute, else the content of an event (Strands), alone a text."""
    if (found := _first(about, *names)) is None:
        found = next((_body(one).get(field) for one in span.events if one.name == event), None)
        found = joined(sequence(found)) or found
    return parsed(found)


def _choice(body: Mapping[str, Any]) -> SpanMessage:
    message = parsed(body.get("message", body.get("content")))
    return message_of(message if isinstance(message, Mapping) else {"content": message}, "assistant")


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
    text = text_of(fields.get("content")) if fields.get("content") is not None else "\n".join(contents)
    made = tuple(openai_calls([call for _, call in sorted(calls.items())]))
    speaker, answered = str(fields.get("role") or role), str(fields.get("tool_call_id") or "")
    parts = sequence(text)
    if parts and all(isinstance(part, dict) and "type" in part for part in parts):  # Anthropic's blocks
        found = message_of({"role": speaker, "content": parts, "tool_call_id": answered})
        if found.text or found.calls:
            return replace(found, calls=found.calls + made)
    return SpanMessage(speaker, text, made, answered)


def _with_details(span: OtlpSpan) -> Mapping[str, Any]:
    """A span's attributes with those of the events that carry messages."""
    details = [event.attributes for event in span.events if event.name == DETAILS]
    details += [
        {CONTENTS[event.name]: event.attributes.get(CONTENTS[event.name])}
        for event in span.events
        if event.name in CONTENTS
    ]
    return (
        {name: value for part in (*details, span.attributes) for name, value in part.items()}
        if details
        else span.attributes
    )


# -- values ------------------------------------------------------------------------------------------------------------


def _first(about: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if (found := about.get(name)) is not None:
            return found
    return None


def _text(about: Mapping[str, Any], *names: str) -> str:
    found = _first(about, *names)
    return "" if found is None else str(found)


def _count(about: Mapping[str, Any], *names: str) -> int:
    """A count, which some senders write as a text; 0 for what is none."""
    found = as_number(_first(about, *names))
    return 0 if found is None else max(0, min(int(found), MOST_TOKENS))


def _dollars(value: Any) -> float | None:
    found = as_number(value)
    return found if found is not None and 0 <= found < 1e6 else None


def _response_id(about: Mapping[str, Any]) -> str:
    """OpenInference has it in the answer's body only."""
    if found := about.get("gen_ai.response.id"):
        return str(found)
    answer = parsed(about.get("output.value"))
    found = answer.get("id") if isinstance(answer, Mapping) and ("choices" in answer or "usage" in answer) else None
    return found if isinstance(found, str) else ""


def _settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings, and the finish reasons of its answers (``finish``, a list)."""
    names = ("temperature", "top_p", "max_tokens", "seed")
    given = parsed(about.get("llm.invocation_parameters"))
    others = given if isinstance(given, Mapping) else {}
    found = {name: about.get(f"gen_ai.request.{name}", others.get(name)) for name in names}
    found["finish"] = _finished(about)
    return {name: value for name, value in found.items() if value is not None}


def _finished(about: Mapping[str, Any]) -> list[str] | None:
    answers = sequence(about.get("gen_ai.output.messages"))
    found = (
        sequence(about.get("gen_ai.response.finish_reasons"))
        or [answer.get("finish_reason") for answer in answers if isinstance(answer, Mapping)]
        or [about.get("gen_ai.completion.0.finish_reason"), about.get("llm.finish_reason")]
    )
    return [one for one in found if isinstance(one, str)] or None
