"""Spans out of exports, what they say of agents, and the trajectories that they make."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from evaluation.events.otlp.agent_spans import AgentSpan, SpanKind
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.otlp.conventions import read
from evaluation.events.otlp.protobuf import from_protobuf
from evaluation.events.otlp.spans import ExportTooLarge, NotOtlp, from_json
from experiences.rollouts.types import Trajectory
from tests.support.memory import measured, peak_of


class Traced:
    """The SDK of OpenTelemetry, whose spans end in memory."""

    def __init__(self) -> None:
        self.ended = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create({"service.name": "clerk"}))
        provider.add_span_processor(SimpleSpanProcessor(self.ended))
        self.tracer = provider.get_tracer("tests")

    @property
    def export(self) -> bytes:
        found: bytes = encode_spans(self.ended.get_finished_spans()).SerializeToString()
        return found

    @property
    def trajectory(self) -> Trajectory:
        (resource,) = from_protobuf(self.export)
        kept = [AgentSpan.from_json(json.loads(read(span).as_json())) for span in resource.spans]
        return trajectory_of(reversed(kept), 7, cost_of=lambda model, usage: usage.total_tokens if model else None)


@pytest.fixture
def traced() -> Traced:
    return Traced()


def as_json(export: bytes) -> bytes:
    """As an exporter in JSON writes it: ids are hexadecimal there."""
    whole = json_format.MessageToDict(ExportTraceServiceRequest.FromString(export))

    def hexed(value: Any) -> Any:
        if isinstance(value, dict):
            ids = ("traceId", "spanId", "parentSpanId")
            return {k: b64decode(v).hex() if k in ids else hexed(v) for k, v in value.items()}
        return [hexed(one) for one in value] if isinstance(value, list) else value

    return json.dumps(hexed(whole)).encode()


def message(role: str, text: str = "", **parts: Any) -> dict[str, Any]:
    own = [{"type": "text", "content": text}] if text else []
    return {"role": role, "parts": own + ([parts] if parts else [])}


def chat(traced: Traced, inputs: list[Any], outputs: list[Any], tokens: tuple[int, int] = (10, 5), **more: Any) -> None:
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
        "gen_ai.input.messages": json.dumps(inputs),
        "gen_ai.output.messages": json.dumps(outputs),
    }
    with traced.tracer.start_as_current_span("chat small", attributes={**about, **more}):
        pass


LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ASKED = [message("system", "You are kind."), message("user", "How warm is it in Bern?")]
CALL = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Bern"}}
ANSWERED = {"type": "tool_call_response", "id": "c1", "response": "12 degrees"}


def test_an_agents_run_is_a_trajectory_of_its_decisions(traced: Traced) -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1"}
    tool |= {"gen_ai.tool.call.arguments": '{"city": "Bern"}', "gen_ai.tool.call.result": '{"degrees": 12}'}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "talk 1"}
    with traced.tracer.start_as_current_span("GET /ask"), traced.tracer.start_as_current_span("run", attributes=agent):
        chat(traced, ASKED, [message("assistant", "I look.", **CALL)], **{"gen_ai.request.temperature": 0.5})
        with traced.tracer.start_as_current_span("weather", attributes=tool):
            pass
        chat(traced, [*ASKED, message("user", **ANSWERED)], [message("assistant", "It is 12 degrees.")], (20, 7))
    found = traced.trajectory
    assert (found.query, found.success, found.outcome, found.error) == ("How warm is it in Bern?", True, 1.0, "")
    assert math.isnan(found.reward) and found.model == "small" and found.key == (0, 7, 0)
    first, second = found.steps
    assert first.action == {"type": "tool", "tool": "weather", "parameters": {"city": "Bern"}}
    assert first.result == {"success": True, "output": {"degrees": 12}, "error": None}
    assert first.state["observation"] == "How warm is it in Bern?" and first.state["thoughts"] == ["I look."]
    assert second.action == {"type": "answer", "tool": None, "parameters": {"text": "It is 12 degrees."}}
    assert second.state["observation"] == "12 degrees"
    assert [(one.tokens, one.cost_micros) for one in found.steps] == [(15, 15), (27, 27)]
    about = found.evidence["otlp"]
    assert about["session_id"] == "talk 1" and about["spans"] == 5 and about["system"] == "You are kind."
    assert about["settings"] == {"temperature": 0.5} and "unpriced" not in about


def test_a_tool_without_a_span_has_the_result_in_the_models_next_input(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("run"):
        chat(traced, ASKED, [message("assistant", **CALL)])
        chat(traced, [*ASKED, message("tool", **ANSWERED)], [message("assistant", **{**CALL, "id": "c2"})])
    first, second = traced.trajectory.steps
    assert first.result == {"success": True, "output": "12 degrees", "error": None}
    assert second.result == {"success": False, "output": None, "error": "no result"}


def test_a_failed_span_gives_its_reason(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("run") as root:
        chat(traced, ASKED, [message("assistant", "Well.")])
        root.set_status(Status(StatusCode.ERROR, "the till was closed"))
    found = traced.trajectory
    assert (found.success, found.outcome, found.error) == (False, 0.0, "agent: the till was closed")


def test_a_call_that_two_instrumentations_report_is_paid_once(traced: Traced) -> None:
    outer = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 10, "llm.token_count.completion": 5}
    with traced.tracer.start_as_current_span("ChatOpenAI", attributes=outer):
        chat(traced, ASKED, [message("assistant", "Hello.")])
    found = traced.trajectory
    assert found.tokens == 15 and len(found.steps) == 1


def tool(traced: Traced, name: str, **more: Any) -> Any:
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **more}
    return traced.tracer.start_as_current_span(name, attributes=about)


def test_a_call_that_a_tool_makes_within_a_call_keeps_its_place(traced: Traced) -> None:
    """An agent's span, its call of a model, the tool within that call, and within the tool another agent's own call
    with a tool of its own."""
    delegate = {"type": "tool_call", "id": "d1", "name": "delegate", "arguments": {}}
    agent = {"gen_ai.operation.name": "invoke_agent"}
    outer = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "large", "gen_ai.usage.input_tokens": 3}
    outer |= {"gen_ai.output.messages": json.dumps([message("assistant", **delegate)])}
    with traced.tracer.start_as_current_span("run", attributes=agent):
        with (
            traced.tracer.start_as_current_span("chat large", attributes=outer),
            tool(traced, "delegate", **{"gen_ai.tool.call.id": "d1"}),
            traced.tracer.start_as_current_span("helper", attributes=agent),
        ):
            chat(traced, ASKED, [message("assistant", **CALL)])
            with tool(traced, "weather", **{"gen_ai.tool.call.id": "c1"}), tool(traced, "thermometer"):
                pass
            chat(traced, ASKED, [message("assistant", "12 degrees.")])
        chat(traced, ASKED, [message("assistant", "It is 12 degrees.")])
    found = traced.trajectory
    said = [(one.action["tool"] or "answer", one.parent) for one in found.steps]
    assert said == [("delegate", None), ("weather", 0), ("thermometer", 1), ("answer", 0), ("answer", None)]
    assert [one.tokens for one in found.steps] == [3, 15, 0, 15, 15]


def test_steps_record_the_parameters_and_the_finish_reason_of_their_call(traced: Traced) -> None:
    asked = {"gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9, "gen_ai.request.max_tokens": 64}
    with traced.tracer.start_as_current_span("run"):
        chat(traced, ASKED, [message("assistant", **CALL)], **asked, **{"gen_ai.response.finish_reasons": ["stop"]})
        chat(traced, ASKED, [message("assistant", **CALL)], **asked, **{"gen_ai.response.finish_reasons": ["length"]})
        answered = {**message("assistant", "It is 12 degrees."), "finish_reason": "stop"}
        chat(traced, ASKED, [answered], **{**asked, "gen_ai.request.temperature": 0.0})
    assert [one.call for one in traced.trajectory.steps] == [
        {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64}, {"finish": "length"}, {"temperature": 0.0},
    ]  # fmt: skip


def test_settings_in_the_parameters_of_openinference_are_read(traced: Traced) -> None:
    about = {"openinference.span.kind": "LLM", "llm.invocation_parameters": '{"temperature": 0.1, "max_tokens": 9}'}
    with traced.tracer.start_as_current_span("ChatCompletion", attributes=about):
        pass
    assert traced.trajectory.steps[0].call == {"temperature": 0.1, "max_tokens": 9, "finish": ""}


OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "small",
    "llm.token_count.prompt": 99,
    "llm.token_count.completion": 50,
    "llm.cost.total": 0.25,
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "You are kind.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.text": "How warm is it in Bern?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"city": "Bern"}',
    "session.id": "talk 1",
}
NUMBERED = {
    "gen_ai.system": "openai",
    "llm.request.type": "chat",
    "gen_ai.request.model": "small",
    "gen_ai.usage.prompt_tokens": 99,
    "gen_ai.usage.completion_tokens": 50,
    "gen_ai.usage.cost": 0.25,
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "You are kind.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "How warm is it in Bern?",
    "gen_ai.completion.0.tool_calls.0.id": "c1",
    "gen_ai.completion.0.tool_calls.0.name": "weather",
    "gen_ai.completion.0.tool_calls.0.arguments": '{"city": "Bern"}',
    "gen_ai.conversation.id": "talk 1",
}


@pytest.mark.parametrize("about", [OPENINFERENCE, NUMBERED], ids=["openinference", "numbered"])
def test_other_conventions_say_the_same(traced: Traced, about: dict[str, Any]) -> None:
    with traced.tracer.start_as_current_span("ChatCompletion", attributes=about):
        pass
    found = traced.trajectory
    (step,) = found.steps
    assert step.action == {"type": "tool", "tool": "weather", "parameters": {"city": "Bern"}}
    assert (found.query, step.tokens, step.cost_micros) == ("How warm is it in Bern?", 149, 250_000)
    assert found.evidence["otlp"]["session_id"] == "talk 1" and found.evidence["otlp"]["system"] == "You are kind."


def test_messages_in_events_are_read(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}) as span:
        span.add_event("gen_ai.user.message", {"content": "How warm is it in Bern?"})
        span.add_event("gen_ai.choice", {"message": '{"content": "12 degrees"}', "index": 0})
    found = traced.trajectory
    assert found.query == "How warm is it in Bern?" and found.steps[0].action["parameters"] == {"text": "12 degrees"}
    assert found.evidence["otlp"]["unpriced"] == [""]


VALUES = st.recursive(
    st.text(max_size=8) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(LOOSE, max_examples=40)
@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=4), st.booleans())
def test_json_and_binary_say_the_same(attributes: dict[str, Any], failed: bool) -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("outer"), traced.tracer.start_as_current_span("inner") as span:
        for name, value in attributes.items():
            span.set_attribute(name, value)
        if failed:
            span.set_status(Status(StatusCode.ERROR, "no"))
    assert from_json(as_json(traced.export)) == from_protobuf(traced.export)
    (resource,) = from_protobuf(traced.export)
    assert [one.name for one in resource.spans] == ["inner", "outer"] and resource.broken == 0
    assert resource.spans[0].parent == resource.spans[1].id and resource.attributes["service.name"] == "clerk"


def field(number: int, content: bytes) -> bytes:
    """A message or text on the wire."""
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


BODY = 64 * 2**20  # the allowed body
EMPTY = BODY // 2
LIES: dict[str, Callable[[], bytes]] = {
    "empty resources": lambda: bytes([1 << 3 | 2, 0]) * EMPTY,
    "empty scopes": lambda: field(1, bytes([2 << 3 | 2, 0]) * EMPTY),
    "empty spans": lambda: field(1, field(2, bytes([2 << 3 | 2, 0]) * EMPTY)),
    "unknown numbers": lambda: bytes([9 << 3, 0]) * EMPTY,
    "spans of empty attributes": lambda: field(1, field(2, field(2, bytes([9 << 3 | 2, 0]) * 2**20) * 31)),
    "one span of all": lambda: field(1, field(2, field(2, bytes([9 << 3 | 2, 0]) * EMPTY))),
    "a resource of all": lambda: field(1, field(1, bytes([1 << 3 | 2, 0]) * EMPTY)),
    "lists in JSON": lambda: b'{"resourceSpans": [' + b"[]," * (BODY // 3) + b"1]}",
    "texts in JSON": lambda: b'{"resourceSpans": [' + b'"ab",' * (BODY // 5) + b"1]}",
}


@measured
@pytest.mark.parametrize("lie", LIES)
def test_an_export_of_many_small_values_takes_no_more_memory_than_two_bodies(lie: str) -> None:
    body = LIES[lie]()
    reader = from_json if "JSON" in lie else from_protobuf
    read: list[Any] = []

    def refused() -> None:
        with suppress(ExportTooLarge):
            read.extend(reader(body))

    assert peak_of(refused) + len(body) < 2 * BODY + 2**20
    assert not any(one.spans for one in read)


@settings(LOOSE)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_export_are_refused_or_hold_nothing(body: bytes) -> None:
    for reader in (from_protobuf, from_json):
        try:
            found = reader(body)
        except NotOtlp:
            continue
        assert not any(one.spans for one in found)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["resourceSpans", "resource", "scopeSpans", "spans", "attributes", "key", "value", "traceId"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(LOOSE)
@given(JUNK)
def test_json_of_any_shape_is_read_or_refused(body: Any) -> None:
    with suppress(NotOtlp):
        from_json(json.dumps({"resourceSpans": body}).encode())


@settings(LOOSE, max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from([*OPENINFERENCE, *NUMBERED, "gen_ai.input.messages", "gen_ai.output.messages", "input.value"]),
        VALUES,
    )
)
def test_attributes_of_any_value_are_read(attributes: dict[str, Any]) -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("chat") as span:
        for name, value in {**attributes, "gen_ai.operation.name": "chat"}.items():
            span.set_attribute(name, value)
    found = traced.trajectory
    assert len(found.steps) >= 1 and found.tokens >= 0 and found.cost_micros >= 0


def test_spans_without_ids_or_moments_are_counted_and_left_out() -> None:
    good = {"traceId": "ab" * 16, "spanId": "cd" * 8, "startTimeUnixNano": "1", "endTimeUnixNano": 2}
    bad = [{**good, "traceId": "0" * 32}, {**good, "spanId": "xy" * 8}, {**good, "startTimeUnixNano": 0}, {}]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [good, *bad]}]}]}
    (found,) = from_json(json.dumps(body).encode())
    assert len(found.spans) == 1 and found.broken == 4
    assert read(found.spans[0]).kind is SpanKind.OTHER


@pytest.mark.parametrize(
    ("attribute", "value", "kind"),
    [
        # https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
        ("gen_ai.operation.name", "chat", SpanKind.MODEL),
        ("gen_ai.operation.name", "text_completion", SpanKind.MODEL),
        ("gen_ai.operation.name", "generate_content", SpanKind.MODEL),
        ("gen_ai.operation.name", "execute_tool", SpanKind.TOOL),
        ("gen_ai.operation.name", "retrieval", SpanKind.TOOL),
        ("gen_ai.operation.name", "invoke_agent", SpanKind.AGENT),
        ("gen_ai.operation.name", "create_agent", SpanKind.AGENT),
        ("gen_ai.operation.name", "invoke_workflow", SpanKind.AGENT),
        # https://arize-ai.github.io/openinference/spec/
        ("openinference.span.kind", "LLM", SpanKind.MODEL),
        ("openinference.span.kind", "TOOL", SpanKind.TOOL),
        ("openinference.span.kind", "RETRIEVER", SpanKind.TOOL),
        ("openinference.span.kind", "AGENT", SpanKind.AGENT),
        ("openinference.span.kind", "CHAIN", SpanKind.AGENT),
        ("openinference.span.kind", "EMBEDDING", SpanKind.OTHER),
        # OpenLLMetry
        ("llm.request.type", "chat", SpanKind.MODEL),
        ("llm.request.type", "completion", SpanKind.MODEL),
        ("traceloop.span.kind", "tool", SpanKind.TOOL),
        ("traceloop.span.kind", "agent", SpanKind.AGENT),
        ("traceloop.span.kind", "workflow", SpanKind.AGENT),
        ("traceloop.span.kind", "task", SpanKind.AGENT),
    ],
)
def test_reader_knows_the_kinds_of_spans_of_each_convention(
    traced: Traced, attribute: str, value: str, kind: SpanKind
) -> None:
    with traced.tracer.start_as_current_span("a span", attributes={attribute: value}):
        pass
    (resource,) = from_protobuf(traced.export)
    assert [read(span).kind for span in resource.spans] == [kind]
