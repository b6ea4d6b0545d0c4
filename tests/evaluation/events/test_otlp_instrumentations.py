"""One small agent as instrumentations report it by their public documentation: a question, a call of a tool, an
answer."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from budgets.pricing import Usage
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.otlp.conventions import read
from evaluation.events.otlp.logs import LOGS
from evaluation.events.otlp.spans import NotOtlp, OtlpSpan, from_json
from experiences.rollouts.types import Trajectory

ASKED, ANSWERED, CITY = "What is the weather in Bern?", "It is sunny in Bern.", {"city": "Bern"}
ARGUMENTS = json.dumps(CITY)
SYSTEM = {"role": "system", "content": "You are kind."}
USER = {"role": "user", "content": ASKED}
FUNCTION = {"name": "weather", "arguments": ARGUMENTS}
CALLS = [{"id": "c1", "type": "function", "function": FUNCTION}]
CALLING = {"role": "assistant", "content": "", "tool_calls": CALLS}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
ANSWER = {"role": "assistant", "content": ANSWERED}
KWARGS = {"args": [], "kwargs": CITY}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
Attributes = dict[str, Any]


def dumped(value: Any) -> str:
    return json.dumps(value)


def cost_of(model: str, usage: Usage) -> int:
    return usage.total_tokens


def run(
    root: Attributes, first: Attributes, tool: Attributes | None, second: Attributes, *, tool_name: str = "weather"
) -> Trajectory:
    """The trajectory of an agent's span around its two calls and its tool; ``tool``: None without a span."""
    spans = [
        OtlpSpan("t", "s2", "s1", "call", 2, 3, "", first),
        *([] if tool is None else [OtlpSpan("t", "s3", "s1", tool_name, 4, 5, "", tool)]),
        OtlpSpan("t", "s4", "s1", "call", 6, 7, "", second),
        OtlpSpan("t", "s1", "", "agent", 1, 8, "", root),
    ]
    return trajectory_of([read(span) for span in spans], 0, cost_of=cost_of)


def check(found: Trajectory, *, tokens: int = 50, query: str = ASKED) -> None:
    shown = [(step.action["tool"], step.action["parameters"], step.result["output"]) for step in found.steps]
    if shown and shown[0][2] == {"result": "sunny"}:  # Google's ADK puts a text into an object
        shown[0] = (*shown[0][:2], "sunny")
    assert found.query == query
    assert shown == [("weather", CITY, "sunny"), (None, {"text": ANSWERED}, None)]
    assert found.success and sum(step.tokens for step in found.steps) == tokens


def numbered(prefix: str, messages: list[Any], field: str) -> Attributes:
    found: Attributes = {}
    for at, message in enumerate(messages):
        for name, value in message.items():
            if name == "tool_calls":
                for number, call in enumerate(value):
                    place = f"{prefix}.{at}.tool_calls.{number}"
                    found |= {f"{place}.id": call["id"]} | {f"{place}.{n}": v for n, v in call["function"].items()}
            else:
                found[f"{prefix}.{at}.{name}"] = value
    return found | {field: "m"}


COUNTS = {"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 5, "gen_ai.request.model": "m"}
OLD_COUNTS = {"llm.usage.prompt_tokens": 20, "llm.usage.completion_tokens": 5}
OPENINFERENCE = {"llm.token_count.prompt": 20, "llm.token_count.completion": 5, "llm.model_name": "m"}
LLM = {"openinference.span.kind": "LLM"} | OPENINFERENCE
CHAT = {"gen_ai.operation.name": "chat"} | COUNTS


def inferred(asked: list[Any], answer: Any) -> Attributes:
    """A call by OpenInference's names."""
    found = LLM | {"input.value": dumped({"messages": asked}), "input.mime_type": "application/json"}
    for side, messages in (("input", asked), ("output", [answer])):
        for at, message in enumerate(messages):
            place = f"llm.{side}_messages.{at}.message"
            found |= {f"{place}.role": message["role"], f"{place}.content": message["content"]}
            for number, call in enumerate(message.get("tool_calls", ())):
                inner = f"{place}.tool_calls.{number}.tool_call"
                found |= {f"{inner}.id": call["id"], f"{inner}.function.name": call["function"]["name"]}
                found[f"{inner}.function.arguments"] = call["function"]["arguments"]
    return found


INFERRED = (inferred([SYSTEM, USER], CALLING), inferred([SYSTEM, USER, CALLING, RESULT], ANSWER))
CHAIN = {"openinference.span.kind": "CHAIN"}
TOOL = {"openinference.span.kind": "TOOL", "tool.name": "weather", "tool.parameters": dumped(SCHEMA)}
TOOL_MESSAGE = {"content": "sunny", "type": "tool", "name": "weather", "tool_call_id": "c1", "status": "success"}
LC_MESSAGE = {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": TOOL_MESSAGE}
PARTS = (
    [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}],
    [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": CITY}]}],
    [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "name": "weather", "result": "sunny"}]}],
    [{"role": "assistant", "parts": [{"type": "text", "content": ANSWERED}], "finish_reason": "stop"}],
)
WORDED = (
    CHAT | {"gen_ai.input.messages": dumped(PARTS[0]), "gen_ai.output.messages": dumped(PARTS[1])},
    CHAT
    | {
        "gen_ai.input.messages": dumped(PARTS[0] + PARTS[1] + PARTS[2]),
        "gen_ai.output.messages": dumped(PARTS[3]),
    },
)


def events(*messages: Any, answer: Any) -> str:
    """Events as an attribute."""
    said = [
        {"event.name": f"gen_ai.{one['role']}.message", "gen_ai.message.index": 0, **one, "id": one.get("tool_call_id")}
        for one in messages
    ]
    return dumped([*said, {"event.name": "gen_ai.choice", "index": 0, "message": answer}])


def haystack(kind: str, asked: Any, answered: Any) -> Attributes:
    return {
        "haystack.component.name": "llm", "haystack.component.type": kind,
        "haystack.component.input": dumped(asked), "haystack.component.output": dumped(answered),
    }  # fmt: skip


def deep(role: str, *content: Any, **meta: Any) -> Any:
    """A message of Haystack."""
    return {"role": role, "meta": meta, "name": None, "content": list(content)}


HAY_CALL = {"tool_name": "weather", "arguments": CITY, "id": "c1", "extra": None}
HAY_USED = {"model": "m", "finish_reason": "stop", "usage": {"prompt_tokens": 20, "completion_tokens": 5}}
HAY_USER = deep("user", {"text": ASKED})
HAY_CALLING = deep("assistant", {"tool_call": HAY_CALL}, **HAY_USED)
HAY_RESULT = deep("tool", {"tool_call_result": {"result": "sunny", "origin": HAY_CALL, "error": False}})
MLFLOW_COUNTS = {"mlflow.chat.tokenUsage": dumped({"input_tokens": 20, "output_tokens": 5, "total_tokens": 25})}
LC_ASKED = [[{"content": ASKED, "type": "human", "additional_kwargs": {}}]]
LC_CALL = {"name": "weather", "args": CITY, "id": "c1", "type": "tool_call"}
GENERATED = {"generations": [[{"text": "", "message": {"content": "", "type": "ai", "tool_calls": [LC_CALL]}}]]}
GENERATED_ANSWER = {"generations": [[{"text": ANSWERED, "message": {"content": ANSWERED, "type": "ai"}}]]}
ADDITIONAL = {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": CALLS}}
LF = "langfuse.observation"
LF_COUNTS = {f"{LF}.usage_details": dumped({"input": 20, "output": 5, "total": 25}), f"{LF}.model.name": "m"}
ADK = "gcp.vertex.agent"
ADK_CONTENTS = [{"role": "user", "parts": [{"text": ASKED}]}]
ADK_CALL = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": CITY}}]}
RUNS: dict[str, tuple[Attributes, Attributes, Attributes | None, Attributes]] = {
    # root, first call, tool, second call
    "OpenLLMetry, a decorated tool": (
        {"traceloop.span.kind": "workflow", "traceloop.entity.input": dumped({"args": [ASKED], "kwargs": {}})},
        numbered("gen_ai.prompt", [SYSTEM, USER], "x") | numbered("gen_ai.completion", [CALLING], "x")
        | {"llm.request.type": "chat"} | COUNTS,
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "weather",
         "traceloop.entity.input": dumped(KWARGS), "traceloop.entity.output": '"sunny"'},
        numbered("gen_ai.prompt", [SYSTEM, USER, CALLING, RESULT], "x") | numbered("gen_ai.completion", [ANSWER], "x")
        | {"llm.request.type": "chat"} | COUNTS,
    ),
    "OpenLLMetry before 0.14": (
        {"traceloop.span.kind": "workflow"},
        numbered("llm.prompts", [USER], "x") | numbered("llm.completions", [CALLING], "x")
        | {"llm.request.type": "chat", "llm.request.model": "m"} | OLD_COUNTS,
        None,
        numbered("llm.prompts", [USER, CALLING, RESULT], "x") | numbered("llm.completions", [ANSWER], "x")
        | {"llm.request.type": "chat", "llm.request.model": "m"} | OLD_COUNTS,
    ),
    "OpenLLMetry, contents as JSON": (
        {"traceloop.span.kind": "workflow"},
        numbered("gen_ai.prompt", [{"role": "user", "content": dumped([{"type": "text", "text": ASKED}])}], "x")
        | numbered("gen_ai.completion", [CALLING], "x") | CHAT,
        None,
        numbered("gen_ai.prompt", [USER, {"role": "user", "content": dumped(
            [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}])}], "x")
        | numbered("gen_ai.completion", [ANSWER], "x") | CHAT,
    ),
    "OpenLLMetry of LangChain": (
        {"traceloop.span.kind": "workflow"},
        WORDED[0],
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "weather", "traceloop.entity.input": dumped(
            {"input_str": str(CITY), "tags": [], "metadata": {}, "inputs": CITY, "kwargs": {"name": "weather"}}),
         "traceloop.entity.output": dumped({"output": LC_MESSAGE, "kwargs": {"tags": []}})},
        WORDED[1],
    ),
    "OpenInference of LangChain": (
        CHAIN | {"input.value": dumped({"messages": [["user", ASKED]]})}, INFERRED[0],
        TOOL | {"input.value": str(CITY), "output.value": dumped(TOOL_MESSAGE)}, INFERRED[1],
    ),
    "OpenInference of smolagents": (
        CHAIN | {"openinference.span.kind": "AGENT", "input.value": dumped({"task": ASKED, "stream": False})},
        INFERRED[0],
        TOOL | {"input.value": dumped({**KWARGS, "sanitize_inputs_outputs": True}), "output.value": "sunny"},
        INFERRED[1],
    ),
    "OpenInference of LlamaIndex": (
        CHAIN, INFERRED[0],
        TOOL | {"input.value": dumped({"kwargs": CITY}), "output.value": dumped(
            {"blocks": [{"block_type": "text", "text": "sunny"}], "tool_name": "weather",
             "raw_input": {"args": [], "kwargs": CITY}, "raw_output": "sunny", "is_error": False})},
        INFERRED[1],
    ),
    "OpenInference of the Agents SDK": (
        {"openinference.span.kind": "AGENT"}, INFERRED[0],
        {"openinference.span.kind": "TOOL", "tool.name": "weather", "input.value": ARGUMENTS, "output.value": "sunny"},
        INFERRED[1],
    ),
    "pydantic-ai, version 1": (
        {"model_name": "m", "agent_name": "clerk", "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 10,
         "final_result": ANSWERED, "logfire.msg": "clerk run"},
        CHAT | {"events": events(USER, answer=CALLING)},
        {"gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1", "tool_arguments": ARGUMENTS,
         "tool_response": "sunny", "logfire.msg": "running tool: weather"},
        CHAT | {"events": events(USER, CALLING, RESULT, answer=ANSWER)},
    ),
    "pydantic-ai, version 2": (
        {"agent_name": "clerk", "pydantic_ai.all_messages": dumped(PARTS[0] + PARTS[3]), "final_result": ANSWERED},
        WORDED[0],
        {"gen_ai.tool.name": "weather", "tool_arguments": ARGUMENTS, "tool_response": "sunny"},
        WORDED[1],
    ),
    "Spring AI": (
        {"gen_ai.operation.name": "framework", "spring.ai.kind": "chat_client"}, WORDED[0],
        {"gen_ai.operation.name": "framework", "spring.ai.kind": "tool_call",
         "spring.ai.tool.definition.name": "weather", "spring.ai.tool.call.arguments": ARGUMENTS,
         "spring.ai.tool.call.result": '"sunny"'},
        WORDED[1],
    ),
    "Semantic Kernel and AutoGen": (
        {"gen_ai.operation.name": "invoke_agent"}, WORDED[0] | {"gen_ai.operation.name": "chat.completions"},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1"},
        WORDED[1] | {"gen_ai.operation.name": "chat.completions"},
    ),
    "Haystack": (
        {"haystack.pipeline.input_data": dumped({"llm": {"messages": [HAY_USER]}})},
        haystack("OpenAIChatGenerator", {"messages": [HAY_USER]}, {"replies": [HAY_CALLING]}),
        haystack("ToolInvoker", {"messages": [HAY_CALLING]}, {"tool_messages": [HAY_RESULT]}),
        haystack("OpenAIChatGenerator", {"messages": [HAY_USER, HAY_CALLING, HAY_RESULT]},
                 {"replies": [deep("assistant", {"text": ANSWERED}, **HAY_USED)]}),
    ),
    "Haystack without a span of the tool": (
        {}, haystack("OpenAIChatGenerator", {"messages": [HAY_USER]}, {"replies": [HAY_CALLING]}), None,
        haystack("OpenAIChatGenerator", {"messages": [HAY_USER, HAY_CALLING, HAY_RESULT]},
                 {"replies": [deep("assistant", {"text": ANSWERED}, **HAY_USED)]}),
    ),
    "MLflow of LangChain": (
        {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": dumped({"messages": [USER]})},
        {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": dumped(LC_ASKED),
         "mlflow.spanOutputs": dumped(GENERATED)} | MLFLOW_COUNTS,
        {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": ARGUMENTS, "mlflow.spanOutputs": dumped(TOOL_MESSAGE)},
        {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": dumped(LC_ASKED),
         "mlflow.spanOutputs": dumped(GENERATED_ANSWER)} | MLFLOW_COUNTS,
    ),
    "MLflow of functions": (
        {"mlflow.spanType": '"AGENT"'},
        {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": dumped({"prompt": None, "messages": [USER]}),
         "mlflow.spanOutputs": dumped(CALLING)} | MLFLOW_COUNTS,
        {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": dumped(KWARGS), "mlflow.spanOutputs": '"sunny"'},
        {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": dumped({"messages": [USER]}),
         "mlflow.spanOutputs": dumped([ANSWERED])} | MLFLOW_COUNTS,  # DSPy: a list of texts
    ),
    "Langfuse of LangChain": (
        {f"{LF}.type": "agent", f"{LF}.input": dumped({"messages": [USER]})},
        {f"{LF}.type": "generation", f"{LF}.input": dumped([USER]), f"{LF}.output": dumped(ADDITIONAL)} | LF_COUNTS,
        {f"{LF}.type": "tool", f"{LF}.input": str(CITY), f"{LF}.output": dumped(TOOL_MESSAGE)},
        {f"{LF}.type": "generation", f"{LF}.input": dumped({"messages": [USER], "tools": [{"type": "function"}]}),
         f"{LF}.output": dumped(ANSWER)} | LF_COUNTS,
    ),
    "Langfuse, decorated functions": (
        {f"{LF}.type": "span", f"{LF}.input": dumped({"args": [ASKED], "kwargs": {}}), f"{LF}.output": dumped("x")},
        {f"{LF}.type": "generation", f"{LF}.input": dumped([USER]), f"{LF}.output": dumped(CALLING)} | LF_COUNTS,
        {f"{LF}.type": "tool", f"{LF}.input": dumped(KWARGS), f"{LF}.output": '"sunny"'},
        {f"{LF}.type": "generation", f"{LF}.input": dumped([USER]), f"{LF}.output": dumped(ANSWERED)} | LF_COUNTS,
    ),
    "Google's ADK": (
        {"gen_ai.operation.name": "invoke_agent"},
        COUNTS | {f"{ADK}.llm_request": dumped({"model": "m", "contents": ADK_CONTENTS}),
                  f"{ADK}.llm_response": dumped({"content": ADK_CALL})},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1",
         f"{ADK}.tool_call_args": ARGUMENTS, f"{ADK}.tool_response": dumped({"result": "sunny"}),
         f"{ADK}.llm_request": "{}", f"{ADK}.llm_response": "{}"},
        COUNTS | {f"{ADK}.llm_request": dumped({"model": "m", "contents": ADK_CONTENTS}),
                  f"{ADK}.llm_response": dumped({"content": {"role": "model", "parts": [{"text": ANSWERED}]}})},
    ),
    "AI SDK 5, arguments as a text": (
        {"ai.operationId": "ai.streamText", "ai.prompt": dumped({"prompt": ASKED})},
        {"ai.operationId": "ai.streamText.doStream", "ai.prompt.messages": dumped(
            [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]), "ai.response.toolCalls": dumped(
            [{"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": ARGUMENTS}]),
         "ai.usage.inputTokens": 20, "ai.usage.outputTokens": 5},
        {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "weather", "ai.toolCall.id": "c1",
         "ai.toolCall.args": ARGUMENTS, "ai.toolCall.result": '"sunny"'},
        {"ai.operationId": "ai.streamText.doStream", "ai.prompt.messages": "[]", "ai.response.text": ANSWERED,
         "ai.usage.inputTokens": 20, "ai.usage.outputTokens": 5},
    ),
    "messages as lists of objects": (
        {"gen_ai.operation.name": "invoke_agent"},
        CHAT | {"gen_ai.input.messages": PARTS[0], "gen_ai.output.messages": PARTS[1]},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1",
         "gen_ai.tool.call.arguments": CITY, "gen_ai.tool.call.result": [{"type": "text", "text": "sunny"}]},
        CHAT | {"gen_ai.input.messages": PARTS[0] + PARTS[1] + PARTS[2], "gen_ai.output.messages": PARTS[3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_question_call_result_and_answer_arrive(name: str) -> None:
    check(run(*RUNS[name]))


EXPORTED = {
    "traceId": "0123456789abcdef0123456789abcdef", "spanId": "0123456789abcdef", "name": "chat",
    "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
}  # fmt: skip


def exported(span: Any, *, resources: str = "resourceSpans", scopes: str = "scopeSpans") -> list[OtlpSpan]:
    body = json.dumps({resources: [{scopes: [{"spans": [span]}]}]}).encode()
    return [one for resource in from_json(body) for one in resource.spans]


def in_base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def in_snake_case(value: Any) -> Any:
    if isinstance(value, list):
        return [in_snake_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in n): in_snake_case(v) for n, v in value.items()}


def event(name: str, at: int, **attributes: Any) -> Any:
    pairs = [{"key": key, "value": {"stringValue": str(value)}} for key, value in attributes.items()]
    pairs += [
        {"key": "event.name", "value": {"stringValue": name}},
        {"key": "session.id", "value": {"stringValue": "s"}},
    ]
    return {"timeUnixNano": str(10**18 + at * 10**9), "attributes": pairs}


def logged(*records: Any) -> Trajectory:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()
    found = [read(one) for resource in from_json(body, LOGS) for one in resource.spans]
    return trajectory_of(found, 0, cost_of=cost_of)


def test_the_answers_of_gemini_cli_are_read_out_of_its_json() -> None:
    used = {"model": "m", "input_token_count": 20, "output_token_count": 5, "duration_ms": 500}
    thought = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm.", "thought": True}]}}]}
    pieces = [{"candidates": [{"content": {"parts": [{"text": text}]}}]} for text in ("It is sunny ", "in Bern.")]
    called = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "weather", "args": CITY}}]}}]}
    blocked = {"candidates": None, "promptFeedback": {}}
    check(
        logged(
            event("gemini_cli.user_prompt", 0, prompt=ASKED),
            event("gemini_cli.api_response", 1, response_text=dumped(called), **used),
            event("gemini_cli.tool_call", 2, function_name="weather", function_args=ARGUMENTS, output="sunny"),
            event("gemini_cli.api_response", 4, response_text=dumped([thought, *pieces, blocked]), **used),
        )
    )


def test_a_failed_answer_of_codex_is_a_failed_step() -> None:
    found = logged(
        event("codex.user_prompt", 0, prompt=ASKED),
        event("codex.sse_event", 1, **{"event.kind": "response.failed", "error.message": "no quota", "model": "m"}),
    )
    assert [(step.result["success"], step.result["error"]) for step in found.steps] == [(False, "no quota")]


def test_exports_of_other_writers_of_json_are_read() -> None:
    [usual] = exported(EXPORTED)
    named = {name: in_base64(EXPORTED[name]) for name in ("traceId", "spanId")}
    assert exported(EXPORTED | named) == [usual]  # a writer of protocol buffers' own JSON
    assert exported(EXPORTED | {"parentSpanId": in_base64("f" * 16)})[0].parent == "f" * 16
    assert exported(in_snake_case(EXPORTED), resources="resource_spans", scopes="scope_spans") == [usual]
    assert exported(EXPORTED, scopes="instrumentationLibrarySpans") == [usual]  # OTLP before 0.16
    assert exported(EXPORTED | {"status": {"code": "2"}})[0].error == "error"
    [stopped] = exported(EXPORTED | {"endTimeUnixNano": "999999999"})  # the clock was set back meanwhile
    assert (stopped.began, stopped.ended) == (1.0, 1.0)
    odd = [{"key": "a", "value": {"intValue": None}}, {"key": "b", "value": {"intValue": "x"}},
           {"key": "c", "value": {"doubleValue": "NaN"}}, {"key": "d", "value": {"intValue": "7"}}]  # fmt: skip
    assert exported(EXPORTED | {"attributes": odd})[0].attributes == {"a": None, "b": None, "c": None, "d": 7}


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        ({"resourceLogs": []}, None, "/v1/logs"),
        ({"resourceMetrics": []}, None, "/v1/metrics"),
        ({"resourceSpans": []}, LOGS, "/v1/traces"),
        ({"spans": [EXPORTED]}, None, "resourceSpans"),
        ([EXPORTED], None, "object"),
    ],
)
def test_an_export_of_something_else_says_where_it_belongs(body: Any, kind: Any, word: str) -> None:
    with pytest.raises(NotOtlp, match=word):
        from_json(json.dumps(body).encode(), kind)
    assert from_json(b"{}", kind) == []


def spans(*given: tuple[str, str, float, float, str, Attributes]) -> Trajectory:
    made = [
        OtlpSpan("t", id, parent, id, began, ended, error, about) for id, parent, began, ended, error, about in given
    ]
    return trajectory_of([read(one) for one in made], 0, cost_of=cost_of)


AGENT = {"gen_ai.operation.name": "invoke_agent"}
RAN = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.result": "sunny"}


def test_a_tool_on_a_machine_whose_clock_is_behind_is_that_of_its_call() -> None:
    check(
        spans(
            ("s1", "", 10, 18, "", AGENT),
            ("s2", "s1", 12, 13, "", WORDED[0]),
            ("s3", "s1", 7, 8, "", RAN | {"gen_ai.tool.call.arguments": ARGUMENTS}),
            ("s4", "s1", 16, 17, "", WORDED[1]),
        )
    )


def test_of_several_roots_the_last_one_decides() -> None:
    calls = (("s2", "away", 2, 3, "", WORDED[0]), ("s3", "away", 4, 5, "no", RAN))
    assert spans(*calls, ("s4", "away", 6, 7, "", WORDED[1])).success  # their root is another program's
    assert not spans(*calls, ("s4", "away", 6, 7, "too long", WORDED[1])).success
    two = (("s1", "", 1, 4, "", AGENT), ("s5", "", 5, 9, "gone", AGENT))
    found = spans(*two, ("s2", "s1", 2, 3, "", WORDED[0]), ("s4", "s5", 6, 7, "", WORDED[1]))
    assert (found.success, found.error, found.query) == (False, "agent: gone", ASKED)
    with_root = (("s0", "away", 0.5, 9, "", {}), ("s1", "", 1, 8, "broke", AGENT))
    assert not spans(*with_root, ("s2", "s1", 2, 3, "", WORDED[1])).success


def test_a_failure_without_words_has_those_of_its_exception() -> None:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [EXPORTED | {"status": {"code": 2}, "events": [
        {"name": "exception", "attributes": [{"key": "exception.message", "value": {"stringValue": "no such city"}}]}
    ]}]}]}]}  # fmt: skip
    [resource] = from_json(json.dumps(body).encode())
    assert read(resource.spans[0]).error == "no such city"
