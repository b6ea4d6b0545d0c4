"""Attributes of spans, one by one, by the names that each convention gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluation.events.otlp.agent_spans import AgentSpan, SpanKind, SpanMessage, SpanToolCall
from evaluation.events.otlp.conventions import MOST_TOKENS, kind_of, read
from evaluation.events.otlp.spans import OtlpSpan, SpanEvent

OPERATION = "gen_ai.operation.name"
CALL = SpanToolCall("weather", {"city": "Bern"}, "c1")


def span(*events: SpanEvent, **attributes: Any) -> OtlpSpan:
    return OtlpSpan("t1", "s1", "p1", "a name", 1.0, 2.5, "failed", attributes, events)


def model(*events: SpanEvent, **attributes: Any) -> AgentSpan:
    return read(span(*events, **{OPERATION: "chat", **attributes}))


def tool(**attributes: Any) -> AgentSpan:
    return read(span(**{OPERATION: "execute_tool", **attributes}))


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *((one, SpanKind.MODEL) for one in ("chat", "text_completion", "generate_content", "completion", "llm")),
        *((one, SpanKind.TOOL) for one in ("execute_tool", "retrieval", "tool", "retriever")),
        *((one, SpanKind.AGENT) for one in ("invoke_agent", "create_agent", "invoke_workflow", "agent", "chain")),
        *((one, SpanKind.AGENT) for one in ("workflow", "task", "AGENT")),
        *((one, SpanKind.OTHER) for one in ("embeddings", "", 7, None)),
    ],
)
def test_the_kind_of_a_span_is_that_of_its_operation(operation: Any, kind: SpanKind) -> None:
    for name in (OPERATION, "openinference.span.kind", "llm.request.type", "traceloop.span.kind"):
        assert kind_of(span(**{name: operation})) is kind
        assert kind_of(span(**{OPERATION: "embeddings", name: operation})) is kind
    assert kind_of(span()) is SpanKind.OTHER
    assert [str(one) for one in SpanKind] == ["model", "tool", "agent", "messages", "other"]


@pytest.mark.parametrize("operation", ["chat", "execute_tool", "invoke_agent", "embeddings"])
def test_every_span_keeps_its_place_and_its_session(operation: str) -> None:
    for name in ("gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id"):
        found = read(span(**{OPERATION: operation, name: "talk 1"}))
        assert (found.trace, found.id, found.parent, found.name) == ("t1", "s1", "p1", "a name")
        assert (found.began, found.ended, found.error, found.session) == (1.0, 2.5, "failed", "talk 1")
        assert AgentSpan.from_json(json.loads(found.as_json())) == found
    both = {"gen_ai.conversation.id": "a", "session.id": "b", "traceloop.association.properties.session_id": "c"}
    assert read(span(**{OPERATION: operation, **both})).session == "a"
    assert read(span(**{OPERATION: operation})).session == ""


def test_a_span_of_another_kind_says_nothing_else() -> None:
    found = read(span(**{"gen_ai.request.model": "small", "input.value": "x", "tool.name": "y"}))
    assert found == AgentSpan("t1", "s1", "p1", "a name", 1.0, 2.5, "failed", SpanKind.OTHER)
    assert (found.model, found.inputs, found.outputs, found.tool, found.call) == ("", (), (), "", "")
    assert (found.input_tokens, found.output_tokens, found.cached_tokens, found.cost_usd) == (0, 0, 0, None)
    assert found.arguments is None and found.result is None and found.settings == {}


NAMES = {
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cost_usd": ("gen_ai.usage.cost", "operation.cost", "llm.cost.total"),
    "tool": ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"),
    "call": ("gen_ai.tool.call.id", "tool_call.id"),
    "arguments": ("gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input", "tool.parameters"),
    "result": ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output"),
}  # fmt: skip
OF_A_TOOL = {"tool", "call", "arguments", "result"}


@pytest.mark.parametrize(("field", "names"), NAMES.items())
def test_a_field_has_a_name_in_each_convention_and_the_first_counts(field: str, names: tuple[str, ...]) -> None:
    made = tool if field in OF_A_TOOL else model
    values = {name: str(at) if field in OF_A_TOOL | {"model"} else at for at, name in enumerate(names, start=1)}
    for at, name in enumerate(names):
        rest = {name: values[name] for name in names[at:]}
        assert getattr(made(**rest), field) == values[name]
        assert getattr(made(**(rest | {name: None})), field) == (
            values[names[at + 1]] if len(rest) > 1 else getattr(made(), field)
        )
    assert tool().tool == "a name" and tool().call == "" and tool().arguments is None and model().cost_usd is None
    assert model().model == "" and model().input_tokens == 0


@pytest.mark.parametrize(
    ("given", "tokens"),
    [(True, 0), ("12", 12), (None, 0), (-1, 0), (0, 0), (1, 1), (2.9, 2), (MOST_TOKENS, 2**31 - 1), (2**31, 2**31 - 1)],
)
def test_a_number_of_tokens_fits_its_column(given: Any, tokens: int) -> None:
    assert model(**{"gen_ai.usage.input_tokens": given}).input_tokens == tokens


@pytest.mark.parametrize(
    ("given", "cost"),
    [
        (True, None),
        ("1", 1.0),
        (-0.01, None),
        (0, 0.0),
        (0.25, 0.25),
        (999_999.5, 999_999.5),
        (1e6, None),
        (1e7, None),
    ],
)
def test_a_cost_is_a_sum_of_dollars_that_a_call_can_cost(given: Any, cost: float | None) -> None:
    assert model(**{"gen_ai.usage.cost": given}).cost_usd == cost


def test_settings_and_finish_reasons_are_those_that_are_given() -> None:
    values = {"temperature": 0.0, "top_p": 0.5, "max_tokens": 9, "seed": 3}
    assert model(**{f"gen_ai.request.{name}": value for name, value in values.items()}).settings == values
    others = json.dumps({"temperature": 1.0, "seed": 4, "stop": "x"})
    found = model(**{"llm.invocation_parameters": others, "gen_ai.request.seed": 3}).settings
    assert found == {"temperature": 1.0, "seed": 3}
    assert model(**{"llm.invocation_parameters": "[1]"}).settings == {}
    reasons = {
        "gen_ai.response.finish_reasons": '["stop", 7, "length"]',
        "gen_ai.output.messages": [{"finish_reason": "tool_call"}, 7],
        "gen_ai.completion.0.finish_reason": "other",
    }
    for at, finish in enumerate((["stop", "length"], ["tool_call"], ["other"])):
        assert model(**dict(list(reasons.items())[at:])).settings == {"finish": finish}
    assert model(**{"gen_ai.response.finish_reasons": [7]}).settings == {}


PARTS = [
    {"role": "system", "parts": ["You are kind."]},
    {"role": "user", "parts": [{"type": "text", "content": "Hello."}, {"text": "There."},
                               {"type": "blob", "text": "no"}, 7]},
    {"role": "assistant", "parts": [{"type": "tool_call", "name": "weather", "arguments": '{"city": "Bern"}',
                                     "id": "c1"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"degrees": 12}},
                               {"type": "tool_call_response", "id": "c2", "result": "wet"}]},
    {"role": "tool", "parts": ["as text", {"type": "tool_call_response", "id": "c3", "response": "unread"}]},
    {"parts": [{"type": "tool_call"}]},
    "no message",
]  # fmt: skip
READ = (
    SpanMessage("system", "You are kind."),
    SpanMessage("user", "Hello.\nThere."),
    SpanMessage("assistant", "", (CALL,)),
    SpanMessage("tool", '{"degrees":12}\nwet', (), "c1"),
    SpanMessage("tool", "as text", (), "c3"),
    SpanMessage("", "", (SpanToolCall("", None, ""),)),
)
NUMBERED = {
    "llm.input_messages.1.message.role": "assistant",
    "llm.input_messages.1.message.tool_calls.1.tool_call.function.name": "clock",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"city": "Bern"}',
    "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "Hello.",
    "llm.input_messages.2.message.tool_call_id": "c1",
    "llm.input_messages.2.message.contents.0.message_content.text": "a",
    "llm.input_messages.2.message.contents.1.text": "b",
    "llm.input_messages.2.message.contents.1.type": "text",
    "llm.input_messages.x.message.content": "no number",
    "llm.input_messages.999999.message.content": "too far",
    "llm.input_messages_of_another.0.message.content": "another name",
}
PROMPTS = {
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": '[{"type": "image"}]',
    "gen_ai.prompt.1.role": "assistant",
    "gen_ai.prompt.1.content": 7,
    "gen_ai.prompt.1.tool_calls.0.name": "weather",
    "gen_ai.prompt.1.tool_calls.0.arguments": "not json",
    "gen_ai.prompt.99999.content": "far",
}
EVENTS = (
    SpanEvent("gen_ai.system.message", {"content": "You are kind."}),
    SpanEvent("gen_ai.user.message", {"content": ["a", 1]}),
    SpanEvent("gen_ai.assistant.message", {}),
    SpanEvent("gen_ai.tool.message", {"content": "12 degrees", "id": "c1"}),
    SpanEvent("exception", {"content": "no message"}),
)


@pytest.mark.parametrize(
    ("events", "attributes", "inputs"),
    [
        ((), {"gen_ai.input.messages": PARTS}, READ),
        ((), {"gen_ai.input.messages": json.dumps(PARTS)}, READ),
        (
            (),
            NUMBERED,
            (
                SpanMessage("user", "Hello."),
                SpanMessage("assistant", "", (CALL, SpanToolCall("clock", None, ""))),
                SpanMessage("", "a\nb", (), "c1"),
            ),
        ),
        (
            (),
            PROMPTS,
            (
                SpanMessage("user", '[{"type": "image"}]'),
                SpanMessage("assistant", "7", (SpanToolCall("weather", "not json", ""),)),
                SpanMessage("", "far"),
            ),
        ),
        (
            EVENTS,
            {},
            (
                SpanMessage("system", "You are kind."),
                SpanMessage("user", '["a",1]'),
                SpanMessage("assistant", ""),
                SpanMessage("tool", "12 degrees", (), "c1"),
            ),
        ),
        ((), {"input.value": "Hello."}, (SpanMessage("user", "Hello."),)),
        ((), {"traceloop.entity.input": {"a": 1}}, (SpanMessage("user", '{"a":1}'),)),
        ((), {"input.value": ""}, ()),
        ((), {}, ()),
    ],
)
def test_input_messages_are_read_by_each_convention(
    events: tuple[SpanEvent, ...], attributes: dict[str, Any], inputs: tuple[SpanMessage, ...]
) -> None:
    assert model(*events, **attributes).inputs == inputs
    system = {"gen_ai.system_instructions": '["Be kind.", {"type": "text", "content": "Be brief."}]'}
    assert model(*events, **attributes, **system).inputs == (SpanMessage("system", "Be kind.\nBe brief."), *inputs)


def choice(**attributes: Any) -> SpanEvent:
    return SpanEvent("gen_ai.choice", attributes)


@pytest.mark.parametrize(
    ("events", "attributes", "said"),
    [
        ((), {"gen_ai.output.messages": PARTS[2:3]}, READ[2:3]),
        (
            (),
            {"llm.output_messages.0.message.content": "Hi.", "llm.output_messages.0.message.role": "assistant"},
            "Hi.",
        ),
        ((), {"gen_ai.completion.0.content": "Hi."}, "Hi."),
        (
            (
                SpanEvent("gen_ai.user.message", {"content": "no answer"}),
                choice(message='{"content": "Hi.", "tool_calls": [{"id": "c1", "function": '
                '{"name": "weather", "arguments": "{\\"city\\": \\"Bern\\"}"}}, {"function": 7}, 7,'
                ' {"function": {}}]}'),
                choice(content="Ho."),
                choice(),
            ),
            {},
            (
                SpanMessage("assistant", "Hi.", (CALL, SpanToolCall("", None, ""))),
                SpanMessage("assistant", "Ho."),
                SpanMessage("assistant", ""),
            ),
        ),
        ((), {"output.value": "Hi."}, "Hi."),
        ((), {"traceloop.entity.output": "Hi."}, "Hi."),
        ((), {}, ()),
    ],
)  # fmt: skip
def test_output_messages_are_read_by_each_convention(
    events: tuple[SpanEvent, ...], attributes: dict[str, Any], said: Any
) -> None:
    expected = (SpanMessage("assistant", said),) if isinstance(said, str) else said
    found = model(*events, **attributes)
    assert found.outputs == expected and AgentSpan.from_json(json.loads(found.as_json())) == found


def test_of_two_conventions_the_newer_counts_and_a_spans_own_attributes_before_those_of_its_details() -> None:
    details = SpanEvent("gen_ai.client.inference.operation.details",
                        {"gen_ai.request.model": "of the event", "input.value": "of the event"})  # fmt: skip
    found = model(details, SpanEvent("another", {"output.value": "no"}), **{"gen_ai.request.model": "of the span"})
    assert (found.model, found.inputs, found.outputs) == ("of the span", (SpanMessage("user", "of the event"),), ())
    everything = {"gen_ai.input.messages": PARTS[:1], **NUMBERED, **PROMPTS, "input.value": "whole"}
    for gone, first in (
        ("gen_ai.input", "You are kind."),
        ("llm.input", "Hello."),
        ("gen_ai.prompt", '[{"type": "image"}]'),
    ):
        assert model(*EVENTS, **everything).inputs[0].text == first
        everything = {name: value for name, value in everything.items() if not name.startswith(gone)}
    assert model(*EVENTS, **everything).inputs[0].text == "You are kind."
    assert model(**everything).inputs == (SpanMessage("user", "whole"),)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        ('"a"', "a"),
        ("12", "12"),
        ("{broken", "{broken"),
        ("", ""),
        (7, 7),
        (None, None),
    ],
)
def test_a_text_that_is_json_is_its_value(given: Any, parsed: Any) -> None:
    assert tool(**{"gen_ai.tool.call.arguments": given}).arguments == parsed


def test_a_tool_has_messages_where_they_are_given() -> None:
    found = tool(**{"input.value": "asked", "output.value": "found"})
    assert found.inputs == (SpanMessage("user", "asked"),) and found.outputs == (SpanMessage("assistant", "found"),)


def test_spans_that_an_earlier_release_stored_are_read() -> None:
    found = model(**{"input.value": "asked", "output.value": "answered"})
    stored = json.loads(found.as_json())
    stored |= {"told": stored.pop("inputs"), "said": stored.pop("outputs")}
    assert AgentSpan.from_json(stored) == found
