"""Spans and log records as real SDKs sent them (``recorded/``, one run of the same small agent each), and the words of
coding agents by their documented names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from budgets.pricing import Usage
from evaluation.events.otlp.agent_spans import AgentSpan, SpanKind
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.otlp.conventions import read
from evaluation.events.otlp.logs import LOGS
from evaluation.events.otlp.messages import messages_of
from evaluation.events.otlp.spans import OtlpSpan, from_json
from experiences.rollouts.types import Trajectory

RECORDED = Path(__file__).with_name("recorded")
ASKED, ANSWERED = "What is the weather in Bern?", "It is sunny in Bern."
CACHED = {"ai_sdk_5": 0, "openai_v2_2_1": 0}  # of the others 8 of 20 tokens: these two do not send it


def cost_of(model: str, usage: Usage) -> int:
    return usage.input_tokens * 1000 + usage.cached_tokens


def spans_of(export: Mapping[str, Any]) -> list[AgentSpan]:
    body = json.dumps(export).encode()
    kinds = {"resourceSpans": None, "resourceLogs": LOGS}
    found = [one for name, kind in kinds.items() if name in export for one in from_json(body, kind)]
    return [read(one) for resource in found for one in resource.spans]


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def check(found: Trajectory, cached: int) -> None:
    assert (found.query, found.model, found.success) == (ASKED, "small-1", True)
    assert [(step.action["type"], step.action["tool"]) for step in found.steps] == [
        ("tool", "weather"),
        ("answer", None),
    ]
    tool, answer = found.steps
    assert (tool.action["parameters"], tool.result["output"]) == ({"city": "Bern"}, "sunny")
    assert answer.action["parameters"] == {"text": ANSWERED}
    assert [step.tokens for step in found.steps] == [25, 25]
    assert [step.cost_micros for step in found.steps] == [20_000 + cached] * 2
    about = found.evidence["otlp"]
    assert about["system"] == "You are kind." and about["settings"]["temperature"] == 0.5


@pytest.mark.parametrize("name", sorted(one.stem for one in RECORDED.glob("*.json")))
def test_an_agent_is_seen_whole_whichever_sdk_reports_it(name: str) -> None:
    check(trajectory_of(spans_of(recorded(name)), 0, cost_of=cost_of), CACHED.get(name, 8))


def test_a_call_that_two_instrumentations_report_beside_each_other_is_one_step() -> None:
    export = recorded("openinference_and_openllmetry")
    spans = [one for resource in export["resourceSpans"] for scope in resource["scopeSpans"] for one in scope["spans"]]
    [root] = [span for span in spans if "parentSpanId" not in span]
    for span in spans:
        if span is not root:
            span["parentSpanId"] = root["spanId"]
    check(trajectory_of(spans_of(export), 0, cost_of=cost_of), 8)
    for span in spans:  # without ids of the provider: by tokens, words and time
        span["attributes"] = [
            one for one in span.get("attributes", []) if one["key"] not in ("gen_ai.response.id", "output.value")
        ]
    check(trajectory_of(spans_of(export), 0, cost_of=cost_of), 8)


def test_calls_of_one_instrumentation_that_say_the_same_stay_two() -> None:
    about = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 1}
    calls = [read(OtlpSpan("t", f"s{n}", "", "chat", n, 9 - n, "", about)) for n in (1, 2)]
    assert len(trajectory_of(calls, 0, cost_of=cost_of).steps) == 2
    again = about | {"gen_ai.response.id": "always-this"}
    after = [read(OtlpSpan("t", f"s{n}", "", "chat", n, n + 1, "", again)) for n in (1, 2)]
    assert len(trajectory_of(after, 0, cost_of=cost_of).steps) == 2
    named = [
        read(OtlpSpan("t", f"s{n}", "", "chat", n, 9 - n, "", about | {"gen_ai.response.id": str(n)})) for n in (1, 2)
    ]
    assert len(trajectory_of(named, 0, cost_of=cost_of).steps) == 2


def test_messages_come_without_their_span_and_join_it_later() -> None:
    export = recorded("openai_v2_2_1")
    logs = spans_of({"resourceLogs": export["resourceLogs"]})
    assert {span.kind for span in logs} == {SpanKind.MESSAGES} and len({span.id for span in logs}) == len(logs) == 8
    alone = trajectory_of(spans_of({"resourceSpans": export["resourceSpans"]}), 0, cost_of=cost_of)
    assert [step.tokens for step in alone.steps] == [25, 25] and alone.query == "agent"


def record(name: str, *, at: int = 10**18, **attributes: Any) -> dict[str, Any]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    pairs = [{"key": key.replace("__", "."), "value": {kinds[type(one)]: one}} for key, one in attributes.items()]
    return {"timeUnixNano": str(at), "body": {"stringValue": name}, "attributes": pairs}


def logged(*records: Mapping[str, Any]) -> list[AgentSpan]:
    return spans_of({"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]})


SECOND = 10**9
CLAUDE = (
    record("claude_code.user_prompt", event__name="user_prompt", session__id="s", prompt__id="p", prompt=ASKED),
    record(
        "claude_code.api_request", event__name="api_request", session__id="s", prompt__id="p", model="small-1",
        input_tokens="3", output_tokens="5", cache_read_tokens="8", cache_creation_tokens="4", cost_usd="0.002",
        duration_ms="1000", request_id="r1", at=10**18 + 2 * SECOND,
    ),
    record(
        "claude_code.tool_result", event__name="tool_result", session__id="s", prompt__id="p", tool_name="Bash",
        success="false", error="no such file", tool_parameters='{"bash_command": "ls"}', duration_ms="100",
        at=10**18 + 3 * SECOND,
    ),
)  # fmt: skip
CODEX = (
    record("", event__name="codex.user_prompt", conversation__id="c", prompt_length="28", prompt=ASKED),
    record(
        "", event__name="codex.sse_event", event__kind="response.output_item.done", conversation__id="c",
        model="small-1", at=10**18 + SECOND,
    ),
    record(
        "", event__name="codex.sse_event", event__kind="response.completed", conversation__id="c", model="small-1",
        input_token_count="15", output_token_count="5", cached_token_count="8", reasoning_token_count="2",
        tool_token_count="20", at=10**18 + 2 * SECOND,
    ),
    record(
        "", event__name="codex.tool_result", conversation__id="c", tool_name="shell", call_id="k", success="true",
        arguments='{"command": ["ls"]}', output="a.txt", duration_ms="100", at=10**18 + 3 * SECOND,
    ),
)  # fmt: skip
GEMINI = (
    record("", event__name="gemini_cli.user_prompt", session__id="s", prompt_id="s########1", prompt=ASKED),
    record(
        "", event__name="gemini_cli.api_response", session__id="s", prompt_id="s########1", model="small-1",
        input_token_count=15, output_token_count=3, thoughts_token_count=2, cached_content_token_count=8,
        duration_ms=900, response_text=ANSWERED, at=10**18 + 2 * SECOND,
    ),
    record(
        "", event__name="gemini_cli.tool_call", session__id="s", prompt_id="s########1", function_name="read_file",
        function_args='{"path": "a"}', success=True, duration_ms=10, at=10**18 + 3 * SECOND,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("records", "tool", "parameters", "output", "cost"),
    [
        (CLAUDE, "Bash", {"bash_command": "ls"}, None, 2_000),
        (CODEX, "shell", {"command": ["ls"]}, "a.txt", 15_008),
        (GEMINI, "read_file", {"path": "a"}, None, 15_008),
    ],
)
def test_a_coding_agent_is_seen_by_its_events(
    records: tuple[Any, ...], tool: str, parameters: Any, output: Any, cost: int
) -> None:
    spans = logged(*records, record("any other program says something"), record("", event__name="codex.sse_event"))
    assert len(spans) == 3 and len({span.trace for span in spans}) == 1 and len({span.id for span in spans}) == 3
    found = trajectory_of(spans, 0, cost_of=cost_of)
    assert (found.query, found.model) == (ASKED, "small-1")
    done = next(step for step in found.steps if step.action["tool"] == tool)
    assert (done.action["parameters"], done.result["output"]) == (parameters, output)
    assert sum(step.tokens for step in found.steps) == 20 and sum(step.cost_micros for step in found.steps) == cost
    assert found.evidence["otlp"]["session_id"] in ("s", "c")
    model = next(span for span in spans if span.kind is SpanKind.MODEL)
    assert model.cached_tokens == 8 and model.cache_written_tokens == (4 if records is CLAUDE else 0)


BLOCKS = [
    {"type": "thinking", "thinking": "[redacted]"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
]


def of_claude(name: str, at: int, **attributes: Any) -> dict[str, Any]:
    return record(
        f"claude_code.{name}", event__name=name, session__id="s", prompt__id="p", at=10**18 + at * SECOND, **attributes
    )


def claude_turns(*, words: bool = True) -> list[dict[str, Any]]:
    """A prompt with two calls of the model, and the events of their words."""
    counts = {"model": "small-1", "input_tokens": "3", "output_tokens": "5", "cost_usd": "0.002", "duration_ms": "1000"}
    body = json.dumps({"id": "msg_1", "role": "assistant", "content": BLOCKS, "stop_reason": "tool_use"})
    records = [
        of_claude("user_prompt", 0, prompt=ASKED),
        of_claude("api_request_body", 1, body=json.dumps({"messages": [{"role": "user", "content": ASKED}]})),
        of_claude("api_request", 2, request_id="r1", **counts),
        of_claude("tool_decision", 3, tool_name="Bash", tool_use_id="toolu_1", decision="accept", source="config"),
        of_claude(
            "tool_result", 4, tool_name="Bash", tool_use_id="toolu_1", success="false", error_type="ShellError",
            tool_input='{"command": "ls"}', duration_ms="100",
        ),
        of_claude("api_request", 6, request_id="r2", **counts),
    ]  # fmt: skip
    if not words:
        return records
    return [
        *records,
        of_claude("assistant_response", 2, request_id="r1", response="I look.", response_length="7"),
        of_claude("api_response_body", 2, request_id="r1", body=body, body_length=str(len(body))),
        of_claude("assistant_response", 6, request_id="r2", response=ANSWERED),
        of_claude("api_response_body", 6, request_id="r2", body=body[:50], body_truncated="true"),
        of_claude("api_response_body", 6, body=body),  # of no request
    ]


def test_the_words_of_claude_codes_answers_join_the_calls_that_are_counted() -> None:
    for records in (claude_turns(), claude_turns()[::-1]):
        spans = logged(*records)
        assert len({span.trace for span in spans}) == 1
        found = trajectory_of(spans, 0, cost_of=cost_of)
        assert [step.action["type"] for step in found.steps] == ["tool", "answer"]
        first, last = found.steps
        assert (first.action["tool"], first.action["parameters"]) == ("Bash", {"command": "ls"})
        assert (first.state["thoughts"], first.result["error"]) == (["I look."], "ShellError")
        assert last.action["parameters"]["text"] == ANSWERED and found.query == ASKED
        assert [step.tokens for step in found.steps] == [8, 8]
        assert [step.cost_micros for step in found.steps] == [2_000, 2_000]
    withheld = logged(
        *claude_turns(words=False), of_claude("assistant_response", 6, request_id="r2", response="<REDACTED>")
    )
    found = trajectory_of(withheld, 0, cost_of=cost_of)
    assert [step.action["tool"] for step in found.steps] == ["Bash", None] and "REDACTED" not in repr(found)
    twice = logged(*claude_turns(), *claude_turns())
    assert len({span.id for span in twice}) == len(logged(*claude_turns()))


def test_a_tool_that_a_person_rejected_is_a_failed_step() -> None:
    rejected = of_claude(
        "tool_decision", 3, tool_name="Bash", tool_use_id="toolu_1", decision="reject", source="user_reject",
        tool_parameters='{"bash_command": "rm -r x"}',
    )  # fmt: skip
    found = trajectory_of(logged(*claude_turns(words=False)[:3], rejected), 0, cost_of=cost_of)
    step = found.steps[0]
    assert (step.action["tool"], step.action["parameters"]) == ("Bash", {"bash_command": "rm -r x"})
    assert (step.result["success"], step.result["error"]) == (False, "user_reject")


def test_a_prompt_is_a_trajectory_of_its_own_and_a_withheld_one_says_so() -> None:
    first, second = logged(
        record("claude_code.user_prompt", session__id="s", prompt__id="1", prompt_length="7"),
        record("claude_code.user_prompt", session__id="s", prompt__id="2", prompt="Hi"),
    )
    assert first.trace != second.trace
    assert first.inputs[0].text == "[a prompt of 7 characters]" and second.inputs[0].text == "Hi"
    assert logged(record("claude_code.user_prompt", prompt="Hi")) == []  # nothing says what it belongs to


CALL = {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", [("x", "plain", [], "")]),
        ('{"q": "Why?"}', [("x", "Why?", [], "")]),
        ({"args": ["Why?"], "kwargs": {}}, [("x", "Why?", [], "")]),
        ({"a": 1, "b": 2}, [("x", '{"a":1,"b":2}', [], "")]),
        ({"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}]},
         [("assistant", "", [("f", {"a": 1}, "c1")], "")]),
        ({"system": "Be kind.", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
         [("system", "Be kind.", [], ""), ("user", "Hi", [], "")]),
        # Anthropic
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]}],
         [("assistant", "", [("f", {"a": 1}, "c1")], ""), ("tool", "sunny", [], "c1")]),
        # Gemini
        ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
                       {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"b": 2}}}]}]},
         [("assistant", "", [("f", {"a": 1}, "")], ""), ("tool", '{"b":2}', [], "")]),
        # LangChain
        ({"generations": [[{"message": {"lc": 1, "type": "constructor", "kwargs": {
            "type": "ai", "content": "Hm", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c1"}]}}}]]},
         [("assistant", "Hm", [("f", {"a": 1}, "c1")], "")]),
        # the Responses API
        ({"output": [{"type": "reasoning", "summary": []},
                     {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm"}]},
                     {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}]},
         [("assistant", "Hm", [("f", {"a": 1}, "c1")], "")]),
    ],
)  # fmt: skip
def test_messages_are_read_in_any_of_their_forms(value: Any, expected: Any) -> None:
    found = messages_of(value, "x")
    assert [
        (one.role, one.text, [(call.name, call.arguments, call.id) for call in one.calls], one.call) for one in found
    ] == expected


def test_langfuse_and_claude_count_what_the_cache_read_and_wrote_beside_the_input() -> None:
    usage = {"input": 3, "input_cached_tokens": 8, "cache_creation_input_tokens": 4, "output": 5}
    found = read(
        OtlpSpan(
            "t", "s", "", "g", 1, 2, "",
            {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": json.dumps(usage),
             "langfuse.observation.cost_details": '{"total": 0.5}', "langfuse.observation.level": "ERROR",
             "langfuse.observation.status_message": "broke"},
        )
    )  # fmt: skip
    counts = (found.input_tokens, found.cached_tokens, found.cache_written_tokens, found.output_tokens)
    assert counts == (15, 8, 4, 5) and (found.cost_usd, found.error) == (0.5, "broke")
    about = {"span.type": "llm_request", "input_tokens": 3, "cache_read_tokens": 8, "cache_creation_tokens": 4}
    claude = read(OtlpSpan("t", "s", "", "claude_code.llm_request", 1, 2, "", about | {"output_tokens": 5}))
    assert (claude.input_tokens, claude.cached_tokens, claude.cache_written_tokens) == (15, 8, 4)


def test_what_was_written_to_the_cache_is_priced_as_such() -> None:
    about = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 32_003, "gen_ai.usage.output_tokens": 10}
    about |= {"gen_ai.usage.cache_read.input_tokens": 20_000, "gen_ai.usage.cache_creation.input_tokens": 12_000}
    priced: list[Usage] = []

    def noted(model: str, usage: Usage) -> int:
        priced.append(usage)
        return 7

    calls = trajectory_of([read(OtlpSpan("t", "s", "", "chat", 1, 2, "", about))], 0, cost_of=noted)
    assert priced == [Usage(32_003, 10, cached_tokens=20_000, cache_write_tokens=12_000)]
    assert calls.steps[0].cost_micros == 7


def test_an_agent_whose_calls_are_unknown_has_its_answer() -> None:
    about = {"langfuse.observation.type": "agent", "langfuse.observation.input": '{"q": "Why?"}'}
    span = OtlpSpan("t", "s", "", "agent", 1, 2, "", about | {"langfuse.observation.output": '"Because."'})
    found = trajectory_of([read(span)], 0, cost_of=cost_of)
    assert found.query == "Why?" and [step.action["parameters"] for step in found.steps] == [{"text": "Because."}]


SAID = {
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWERED}]}]),
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.output_tokens": 5,
}
OTHERS: dict[str, dict[str, Any]] = {
    "counts as texts": SAID
    | {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "20", "gen_ai.usage.output_tokens": "5"},
    "an operation of a name of its own": SAID | {"gen_ai.operation.name": "responses"},
    "no operation and no counts": {
        "gen_ai.request.model": "m", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": ASKED,
        "gen_ai.completion.0.content": ANSWERED,
    },
    "Langfuse with the words at the trace": {
        "langfuse.observation.type": "generation", "langfuse.observation.usage_details": '{"input": 20, "output": 5}',
        "langfuse.trace.input": json.dumps({"q": ASKED}), "langfuse.trace.output": json.dumps(ANSWERED),
    },
    "MLflow": {
        "mlflow.spanType": '"CHAT_MODEL"', "mlflow.chat.tokenUsage": '{"input_tokens": 20, "output_tokens": 5}',
        "mlflow.spanInputs": json.dumps({"messages": [{"role": "user", "content": ASKED}]}),
        "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": ANSWERED}}]}),
    },
    "Google's ADK": {
        "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 5, "gen_ai.request.model": "m",
        "gcp.vertex.agent.llm_request": json.dumps({"contents": [{"role": "user", "parts": [{"text": ASKED}]}]}),
        "gcp.vertex.agent.llm_response": json.dumps({"content": {"role": "model", "parts": [{"text": ANSWERED}]}}),
    },
}  # fmt: skip


@pytest.mark.parametrize("about", OTHERS.values(), ids=OTHERS)
def test_one_call_is_read_by_the_names_of_its_sender(about: dict[str, Any]) -> None:
    found = trajectory_of([read(OtlpSpan("t", "s", "", "call", 1, 2, "", about))], 0, cost_of=cost_of)
    assert found.query == ASKED
    assert [step.action["parameters"] for step in found.steps] == [{"text": ANSWERED}]
    assert [step.tokens for step in found.steps] == [0 if "gen_ai.prompt.0.role" in about else 25]
