"""OpenAI's Responses API as foreign agents call it during a rollout: one ledger, one budget and one record with chat
completions, independent of the protocol of the model's own server."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from budgets.meter_port import FreeMeter
from experiences.rollouts.collect import RolloutLimits
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.responses_body import ResponsesBody
from tests.experiences.rollouts.runtimes.test_http import rolled
from tests.experiences.rollouts.runtimes.test_llm import Purse
from tests.support.agent_server import AgentServer, Ask
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
TIMES = {"type": "function", "name": "times", "parameters": {"type": "object"}, "strict": True}


def text_of(response: dict[str, Any]) -> str:
    """The text that the official client gives as ``output_text``."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def calculates(messages: list[dict[str, Any]]) -> Any:
    """Asks for ``times`` of 17 and 23, and answers with what it is given."""
    if messages[-1]["role"] == "tool":
        return f"Answer: {messages[-1]['content']}"
    function = {"name": "times", "arguments": '{"a": 17, "b": 23}'}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


async def test_its_responses_are_steps_paid_for_like_chat_completions() -> None:
    answers: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        answers.append(ask.response(asked["query"], instructions="Be brief.", max_output_tokens=50, temperature=0))
        ask({"role": "user", "content": "the same purse"})
        return text_of(answers[0])

    meter = FreeMeter()
    with ModelServer(brain=lambda _: "Answer: 391") as model, AgentServer(asks) as agent:
        result = await rolled(agent, model, meter=meter)
        sent = model.requests[0].body
    assert result.success, (result.error, answers)
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": agent.asked[0]["query"]},
    ]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("small", 50, 0)
    assert [step.action["type"] for step in result.steps] == ["message", "message", "answer"]
    assert result.steps[0].state["observation"] == agent.asked[0]["query"]
    assert list(meter.bills) == ["j/1/0/0/1/1", "j/1/0/0/2/1"]
    assert result.cost_micros == meter.spent_micros > 0 and meter.reserved_micros == 0
    answer = answers[0]
    assert (answer["object"], answer["status"], answer["error"]) == ("response", "completed", None)
    used = answer["usage"]
    assert used["input_tokens"] + used["output_tokens"] == used["total_tokens"] == result.steps[0].tokens
    assert used["input_tokens_details"] == {"cached_tokens": 0} and answer["instructions"] == "Be brief."


async def test_functions_are_called_and_their_outputs_read() -> None:
    def agentic(asked: dict[str, Any], ask: Ask) -> str:
        items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": asked["query"]}]}]
        answer = ask.response(items, tools=[TIMES], tool_choice={"type": "function", "name": "times"})
        call = answer["output"][-1]
        given = json.loads(call["arguments"])
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": str(given["a"] * given["b"])}
        items += [{"type": "reasoning", "id": "rs_1", "summary": []}, *answer["output"], result]
        return text_of(ask.response(items, tools=[TIMES]))

    with ModelServer(brain=calculates) as model, AgentServer(agentic) as agent:
        found = await rolled(agent, model)
        first, second = (one.body for one in model.requests)
    assert found.success, (found.error, found.steps)
    assert found.steps[0].action == {"type": "tool", "tool": "times", "parameters": {"a": 17, "b": 23}}
    assert first["tools"][0]["function"]["name"] == "times"
    assert first["tool_choice"] == {"type": "function", "function": {"name": "times"}}
    assert [one["role"] for one in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][1]["tool_calls"][0]["id"] == second["messages"][2]["tool_call_id"] == "c"


async def test_a_custom_tool_is_called_and_its_response_goes_on() -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        tools = [{"type": "custom", "name": "times", "description": "Multiplies."}]
        events = ask.response(asked["query"], tools=tools, stream=True)["events"]
        call = events[-1]["response"]["output"][0]
        seen.extend([*events, call])
        result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "391"}
        return text_of(ask.response([result], previous_response_id=events[-1]["response"]["id"], tools=tools))

    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        function = {"name": "times", "arguments": '{"input": "17 * 23"}'}
        return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}

    with ModelServer(brain=brain) as model, AgentServer(asks) as agent:
        found = await rolled(agent, model)
        second = model.requests[1].body["messages"]
    assert found.success, (found.error, seen)
    assert (seen[-1]["type"], seen[-1]["input"]) == ("custom_tool_call", "17 * 23")
    assert "response.custom_tool_call_input.delta" in {one["type"] for one in seen}
    assert json.loads(second[1]["tool_calls"][0]["function"]["arguments"]) == {"input": "17 * 23"}
    assert [one["role"] for one in second] == ["user", "assistant", "tool"]


async def test_a_response_goes_on_from_one_of_the_same_rollout() -> None:
    answers: list[dict[str, Any]] = []

    def goes_on(asked: dict[str, Any], ask: Ask) -> str:
        first = ask.response(asked["query"], instructions="Use the tool.", tools=[TIMES])
        result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "391"}
        answers.append(ask.response([result], previous_response_id=first["id"], tools=[TIMES], store=False))
        answers.append(ask.response("more", previous_response_id=answers[0]["id"]))
        return text_of(answers[0])

    with ModelServer(brain=calculates) as model, AgentServer(goes_on) as agent:
        found = await rolled(agent, model)
        sent = model.requests[1].body["messages"]
    assert found.success, (found.error, answers)
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]  # instructions are of one request alone
    assert answers[1]["status"] == 400 and answers[1]["error"]["code"] == "previous_response_not_found"
    assert answers[1]["error"]["param"] == "previous_response_id" and len(found.steps) == 3


async def test_a_stream_is_the_same_response_in_events() -> None:
    seen: list[list[dict[str, Any]]] = []

    def streams(asked: dict[str, Any], ask: Ask) -> str:
        for text in ("call", "say"):
            events = ask.response(text, tools=[TIMES], stream=True)["events"]
            seen.append(events)
        return "".join(event["delta"] for event in seen[1] if event["type"] == "response.output_text.delta")

    def brain(messages: list[dict[str, Any]]) -> Any:
        return "Answer: 391" if messages[-1]["content"] == "say" else calculates(messages)

    with ModelServer(brain=brain) as model, AgentServer(streams) as agent:
        result = await rolled(agent, model)
    assert result.success, (result.error, seen)
    for events in seen:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done == events[-1]["response"]["output"]
    assert [event["type"].removeprefix("response.") for event in seen[0]] == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert seen[0][-1]["response"]["output"][0]["arguments"] == '{"a": 17, "b": 23}'


async def test_a_stream_that_breaks_ends_with_the_events_that_the_api_names() -> None:
    lines: list[str] = []
    received = threading.Event()

    def reads(asked: dict[str, Any], ask: Ask) -> str:
        body = json.dumps({"input": "x", "stream": True}).encode()
        headers = {"authorization": f"Bearer {asked['api_key']}"}
        with urllib.request.urlopen(urllib.request.Request(f"{asked['base_url']}/responses", body, headers)) as answer:
            lines.extend(answer.read().decode().splitlines())
        received.set()
        return "Answer: 391"

    with ModelServer(brain=lambda _: "one two three four five six") as model, AgentServer(reads) as agent:
        model.will(*["cut_stream"] * 5)
        with pytest.raises(Halted):
            await rolled(agent, model)
        assert await asyncio.to_thread(received.wait, 10)
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [line.removeprefix("event: ") for line in lines if line.startswith("event: ")] == [e["type"] for e in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    error, failed = events[-2:]
    assert error["type"] == "error" and error["message"] == error["error"]["message"] and error["code"]
    assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": error["code"], "message": error["message"]}


def test_images_of_results_follow_behind_all_results_in_a_users_message() -> None:
    parts = [{"type": "input_text", "text": "A chart: "}, PICTURE, {"type": "input_text", "text": "by month"}]
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Draw both."},
        {"type": "function_call", "call_id": "a", "name": "draw", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "draw", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"},
        {"type": "function_call_output", "call_id": "a", "output": parts},
        {"type": "function_call_output", "call_id": "b", "output": [PICTURE | {"detail": "low"}]},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x.py"}]},
        {"role": "user", "content": "Compare."},
    ]
    said = ResponsesBody.model_validate({"input": items}).chat_json()["messages"]
    assert [one["role"] for one in said] == ["user", "assistant", "tool", "tool", "tool", "user", "user"]
    assert [(one["tool_call_id"], one["content"]) for one in said[2:5]] == [
        ("a", "A chart: by month"),
        ("b", "The result is an image, which follows."),
        ("c", "x.py"),
    ]
    url = PICTURE["image_url"]
    assert said[5]["content"] == [
        {"type": "text", "text": "From the result of a:"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "From the result of b:"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]


async def test_an_answer_that_was_cut_is_incomplete() -> None:
    answers: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        answers.append(ask.response("x", max_output_tokens=3))
        answers.append(ask.response("x", max_output_tokens=3, stream=True))
        return "Answer: 391"

    with ModelServer(brain=lambda _: "one two three four five") as model, AgentServer(asks) as agent:
        await rolled(agent, model)
    assert answers[0]["status"] == "incomplete"
    assert answers[0]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answers[1]["events"][-1]["type"] == "response.incomplete"


async def test_options_of_an_agents_request_are_passed_on() -> None:
    shape = {"type": "json_schema", "name": "number", "strict": True, "schema": {"type": "object"}}

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        ask.response("x", tools=[TIMES], tool_choice="required", parallel_tool_calls=False, text={"format": shape})
        ask.response("x", text={"format": {"type": "text"}, "verbosity": "low"}, reasoning={"effort": "low"})
        return "Answer: 391"

    with ModelServer() as model, AgentServer(asks) as agent:
        await rolled(agent, model)
        first, second = (one.body for one in model.requests)
    assert (first["tool_choice"], first["parallel_tool_calls"]) == ("required", False)
    named = {"name": "number", "strict": True, "schema": {"type": "object"}}
    assert first["response_format"] == {"type": "json_schema", "json_schema": named}
    assert not {"response_format", "reasoning"} & second.keys()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning", "id": "r", "summary": []}]}, "input"),
        ({"input": 7}, "input"),
        ({"input": [7]}, "input.0"),
        ({"input": [{"type": ["message"]}]}, "input.0"),
        ({"input": [{"type": "computer_call"}]}, "input.0"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input.0.message.role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.message.content",
        ),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.function_call_output.call_id"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [PICTURE]}]},
            "input.0.function_call_outp",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input.0.message.content"),
        ({"input": [{"role": "user", "content": "x"}] * 1001}, "input"),
        ({"input": "x", "instructions": 7}, "instructions"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools.0.name"),
        ({"input": "x", "tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"input": "x", "text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"input": "x", "temperature": 3}, "temperature"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": "x", "prompt": {"id": "pmpt_1"}}, "prompt"),
        (b"[" * 100_000, None),
        (b'{"input": NaN}', None),
        (b"7", None),
    ],
)
async def test_a_bad_request_gets_a_400_that_names_the_field(body: dict[str, Any] | bytes, param: str | None) -> None:
    answers: list[tuple[int, dict[str, Any]]] = []

    def sends(asked: dict[str, Any], ask: Ask) -> str:
        read = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {asked['api_key']}"}
        try:
            urllib.request.urlopen(urllib.request.Request(f"{asked['base_url']}/responses", read, headers), timeout=5)
        except urllib.error.HTTPError as error:
            answers.append((error.code, json.loads(error.read())["error"]))
        return "Answer: 1"

    with ModelServer() as model, AgentServer(sends) as agent:
        result = await rolled(agent, model)
        assert not model.requests
    ((status, error),) = answers
    assert status == 400 and error["message"] and error["type"] == "invalid_request_error"
    assert error["param"] is None if param is None else str(error["param"]).startswith(param)
    assert [step.action["type"] for step in result.steps] == ["answer"]


async def test_limits_and_what_the_model_refuses_are_errors_of_openai() -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        seen.extend(ask.response("x") for _ in range(3))
        return "Answer: 391"

    too_long = {"message": "This model's maximum context length is 10 tokens.", "code": "context_length_exceeded"}
    with ModelServer() as model, AgentServer(asks) as agent:
        model.will(act("status", code=400, error=too_long))
        result = await rolled(agent, model, limits=RolloutLimits(max_steps=3))
    assert [one["status"] for one in seen] == [400, "completed", 429]
    assert [one["error"]["code"] for one in (seen[0], seen[2])] == ["context_length_exceeded", "step_limit"]
    assert [step.action["type"] for step in result.steps] == ["refused", "message", "answer"] and result.success


async def test_no_money_halts_the_run() -> None:
    with ModelServer() as model, AgentServer(lambda asked, ask: str(ask.response("x"))) as agent:
        with pytest.raises(Halted) as halted:
            await rolled(agent, model, meter=Purse(0))
        assert not model.requests
    assert halted.value.reason == "budget_exceeded"
