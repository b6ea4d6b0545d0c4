"""Spans of senders by their documented names, written by hand: the same small agent is seen whole in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from evaluation.events.otlp.agent_spans import AgentSpan
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.otlp.conventions import read
from evaluation.events.otlp.spans import OtlpSpan, SpanEvent
from experiences.rollouts.types import Trajectory

ASKED, ANSWERED = "What is the weather in Bern?", "It is sunny in Bern."
ARGUMENTS: Final = json.dumps({"city": "Bern"})
CALL: Final = {"id": "k", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
USER: Final = {"role": "user", "content": ASKED}
CALLING: Final = {"role": "assistant", "tool_calls": [CALL]}
ANSWERING: Final = {"role": "assistant", "content": ANSWERED}
USED: Final = {"gen_ai.request.model": "small-1", "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 5}
CHAT: Final = {"gen_ai.operation.name": "chat", **USED}
AGENT: Final = {"gen_ai.operation.name": "invoke_agent"}
TOOL: Final = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "k"}
Part = tuple[Mapping[str, Any], Sequence[tuple[str, Mapping[str, Any]]]]


def of(about: Mapping[str, Any], *events: tuple[str, Mapping[str, Any]]) -> Part:
    return about, events


def body(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    return name, {"gen_ai.event.content": json.dumps(value)}


def braintrust(kind: str, asked: Any, answered: Any, **named: Any) -> Part:
    told = {"span_attributes": {"type": kind, "name": "weather"}, "input_json": asked, "output_json": answered}
    return of({f"braintrust.{name}": json.dumps(value) for name, value in (told | named).items()})


def laminar(kind: str, asked: Any, answered: Any, **used: Any) -> Part:
    told = {"lmnr.span.input": json.dumps(asked), "lmnr.span.output": json.dumps(answered)}
    return of({"lmnr.span.type": kind, **told, **used})


def genkit(kind: str, name: str, asked: Any, answered: Any) -> Part:
    about = {"type": "action", "metadata:subtype": kind, "name": name}
    told = {"genkit:input": json.dumps(asked), "genkit:output": json.dumps(answered)}
    return of({f"genkit:{key}": value for key, value in about.items()} | told)


def entity(sender: str, kind: str, asked: Any, answered: Any) -> Part:
    told = {"input": asked, "output": answered, "name": "weather"}
    about = {f"{sender}.entity.{key}": json.dumps(one) if key != "name" else one for key, one in told.items()}
    return of({f"{sender}.span.kind": kind, **about})


def numbered(sender: str, *, calls: bool) -> Part:
    about = {f"{sender}.span.kind": "llm", **USED, "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": ASKED}
    first = "gen_ai.completion.0"
    if not calls:
        return of({**about, f"{first}.role": "assistant", f"{first}.content": ANSWERED})
    called = {"id": "k", "name": "weather", "arguments": ARGUMENTS}
    return of(about | {f"{first}.tool_calls.0.{name}": value for name, value in called.items()})


def by_entity(sender: str, agent: str) -> list[Part]:
    tool = entity(sender, "tool", {"city": "Bern"}, "sunny")
    return [entity(sender, agent, ASKED, ANSWERED), numbered(sender, calls=True), tool, numbered(sender, calls=False)]


COUNTED: Final = {
    "metadata": {"model": "small-1", "provider": "openai"},
    "metrics": {"prompt_tokens": 20, "completion_tokens": 5, "tokens": 25, "prompt_cached_tokens": 8},
}
USE: Final = {"toolUse": {"toolUseId": "k", "name": "weather", "input": {"city": "Bern"}}}
RESULT: Final = {"toolResult": {"toolUseId": "k", "content": [{"text": "sunny"}]}}
WORDS: Final = ("gen_ai.user.message", {"content": json.dumps([{"text": ASKED}])})
SENDERS: dict[str, list[Part]] = {
    "Braintrust": [
        braintrust("task", ASKED, ANSWERED),
        braintrust("llm", [USER], [{"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}}], **COUNTED),
        braintrust("tool", {"city": "Bern"}, "sunny"),
        braintrust("llm", [USER], [{"index": 0, "message": {"role": "assistant", "content": ANSWERED}}], **COUNTED),
    ],
    "Azure AI": [
        of(AGENT),
        of(
            CHAT,
            body("gen_ai.user.message", USER),
            body("gen_ai.choice", {"message": CALLING}),
        ),
        of(TOOL),
        of(
            CHAT,
            body("gen_ai.user.message", USER),
            body("gen_ai.assistant.message", {"role": "assistant", "tool_calls": [CALL]}),
            body("gen_ai.tool.message", {"role": "tool", "id": "k", "content": "sunny"}),
            body("gen_ai.choice", {"index": 0, "message": {"content": ANSWERED}}),
        ),
    ],
    "Spring AI and Langtrace": [
        of(AGENT),
        of(
            CHAT,
            ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([USER])}),
            (
                "gen_ai.content.completion",
                {"gen_ai.completion": json.dumps([CALLING])},
            ),
        ),
        of({**TOOL, "gen_ai.tool.call.result": "sunny"}),
        of(
            CHAT,
            ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([USER])}),
            (
                "gen_ai.content.completion",
                {"gen_ai.completion": json.dumps([ANSWERING])},
            ),
        ),
    ],
    "Strands": [
        of(AGENT, WORDS, ("gen_ai.choice", {"message": ANSWERED})),
        of(CHAT, WORDS, ("gen_ai.choice", {"message": json.dumps([USE])})),
        of(
            TOOL,
            ("gen_ai.tool.message", {"role": "tool", "content": ARGUMENTS, "id": "k"}),
            ("gen_ai.choice", {"message": json.dumps([{"text": "sunny"}]), "id": "k"}),
        ),
        of(
            CHAT,
            WORDS,
            ("gen_ai.assistant.message", {"content": json.dumps([USE])}),
            ("gen_ai.tool.message", {"content": json.dumps([RESULT])}),
            ("gen_ai.choice", {"message": json.dumps([{"text": ANSWERED}])}),
        ),
    ],
    "Laminar": [
        laminar("DEFAULT", ASKED, ANSWERED),
        laminar("LLM", [USER], [{"role": "assistant", "content": "", "tool_calls": [CALL]}], **USED),
        laminar("TOOL", {"city": "Bern"}, "sunny"),
        laminar("LLM", [USER], [{"role": "assistant", "content": ANSWERED}], **USED),
    ],
    "Genkit": [
        genkit("flow", "agent", ASKED, ANSWERED),
        genkit(
            "model",
            "googleai/small-1",
            {"messages": [{"role": "user", "content": [{"text": ASKED}]}]},
            {
                "message": {
                    "role": "model",
                    "content": [{"toolRequest": {"name": "weather", "ref": "k", "input": {"city": "Bern"}}}],
                },
                "usage": {"inputTokens": 20, "outputTokens": 5},
            },
        ),
        genkit("tool", "weather", {"city": "Bern"}, "sunny"),
        genkit(
            "model",
            "googleai/small-1",
            {"messages": [{"role": "user", "content": [{"text": ASKED}]}]},
            {
                "message": {"role": "model", "content": [{"text": ANSWERED}]},
                "usage": {"inputTokens": 20, "outputTokens": 5},
            },
        ),
    ],
    "AgentOps": by_entity("agentops", "agent"),
    "Traceloop": by_entity("traceloop", "workflow"),
}


def seen(parts: Sequence[Part]) -> Trajectory:
    spans: list[AgentSpan] = []
    for at, (about, events) in enumerate(parts):
        began, ended = (0, 100) if at == 0 else (20 * at, 20 * at + 10)
        made = tuple(SpanEvent(name, one) for name, one in events)
        spans.append(
            read(
                OtlpSpan(
                    "t", f"s{at}", "s0" if at else "", "weather" if at == 2 else "agent", began, ended, "", about, made
                )
            )
        )
    return trajectory_of(spans, 0, cost_of=lambda _, usage: usage.input_tokens)


@pytest.mark.parametrize("sender", SENDERS)
def test_an_agent_is_seen_whole_by_the_documented_names_of_its_sender(sender: str) -> None:
    found = seen(SENDERS[sender])
    assert (found.query, found.model, found.success) == (ASKED, "small-1", True)
    tool, answer = found.steps
    assert (tool.action["type"], tool.action["tool"]) == ("tool", "weather")
    assert tool.action["parameters"] == {"city": "Bern"}
    assert tool.result["output"] == "sunny"
    assert (answer.action["type"], answer.action["parameters"]) == ("answer", {"text": ANSWERED})
    assert [step.tokens for step in found.steps] == [25, 25]


def test_words_of_braintrust_are_read_alone_and_beside_the_conventions() -> None:
    told = {"braintrust.input": ASKED, "braintrust.output": ANSWERED}
    alone = seen([of(told)])
    assert (alone.query, alone.steps[0].action["parameters"]) == (ASKED, {"text": ANSWERED})
    words = {"braintrust.input": json.dumps([USER]), "braintrust.output": json.dumps(ANSWERING)}
    beside = seen([of({**CHAT, **words})])
    assert (beside.query, beside.steps[0].tokens) == (ASKED, 25)
    assert beside.steps[0].action["parameters"] == {"text": ANSWERED}
    counted = seen([of({**told, "braintrust.metadata.model": "small-1", "braintrust.metrics.completion_tokens": 5})])
    assert (counted.model, counted.steps[0].tokens) == ("small-1", 5)


def test_an_answer_that_only_the_agent_has_comes_last() -> None:
    agent, calls, tool, _ = SENDERS["Braintrust"]
    found = seen([agent, calls, tool])
    assert [step.action["type"] for step in found.steps] == ["tool", "answer"]
    assert found.steps[1].action["parameters"] == {"text": ANSWERED} and found.steps[1].parent is None
    assert [step.action["type"] for step in seen([of(AGENT), calls, tool]).steps] == ["tool"]
