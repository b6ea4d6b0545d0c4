"""Foreign agents over real sockets: their calls are steps, paid for, and bounded; their faults are data."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from budgets.meter_port import FreeMeter
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, run_rollout
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.runtimes.base import Halted, PromptContext
from experiences.rollouts.runtimes.gateway import RolloutGateway
from experiences.rollouts.runtimes.http import HTTPRuntime
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.types import RolloutKey, Trajectory
from tests.experiences.rollouts.runtimes.test_llm import ROWS, Purse, client_of, paid
from tests.support.agent_server import AgentServer, Ask
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.waiting import Interrupted


def plain(asked: dict[str, Any], ask: Ask) -> str:
    first = ask({"role": "user", "content": asked["query"]}, temperature=0)
    said = first["choices"][0]["message"]["content"]
    again = ask({"role": "user", "content": f"Only the number of: {said}"})
    return f"Answer: {again['choices'][0]['message']['content']}"


async def rolled(
    agent: AgentServer,
    model: ModelServer,
    *,
    meter: Any = None,
    limits: RolloutLimits | None = None,
    check: Any = lambda: None,
    url: str = "",
    **runtime: Any,
) -> Trajectory:
    environment = dataset_environment(ROWS, {})
    gateway = RolloutGateway()
    limits = limits or RolloutLimits()
    try:
        async with client_of(model, meter or FreeMeter()) as client:
            return await run_rollout(
                environment.scenarios("all", 1, 0)[0],
                RolloutKey(1, 0, 0),
                RolloutPlan(
                    environment=environment,
                    runtime=HTTPRuntime(
                        url or agent.url,
                        gateway,
                        client,
                        Sampling("small"),
                        max_steps=limits.max_steps,
                        key_prefix="j",
                        **runtime,
                    ),
                    reward=paid,
                    seed=1,
                    limits=limits,
                    check=check,
                ),
            )
    finally:
        await gateway.aclose()


async def test_its_calls_are_steps_and_its_answer_is_scored() -> None:
    meter = FreeMeter()
    with ModelServer(brain=lambda _: "391") as model, AgentServer(plain) as agent:
        result = await rolled(agent, model, meter=meter)
    assert (result.success, result.error) == (True, "")
    assert [step.action["type"] for step in result.steps] == ["message", "message", "answer"]
    assert result.steps[0].state["observation"] == ROWS[0]["query"]
    assert list(meter.bills) == ["j/1/0/0/1/1", "j/1/0/0/2/1"]
    assert result.cost_micros == meter.spent_micros > 0 and meter.reserved_micros == 0
    assert model.requests[0].model == "small"  # the agent may name another; the job's model answers
    assert agent.asked[0]["query"] == ROWS[0]["query"]


async def test_the_key_is_good_for_one_rollout() -> None:
    kept: list[Ask] = []

    def keeps(asked: dict[str, Any], ask: Ask) -> str:
        kept.append(ask)
        return "Answer: 1"

    environment = dataset_environment(ROWS, {})
    gateway = RolloutGateway()
    with ModelServer() as model, AgentServer(keeps) as agent:
        async with client_of(model, FreeMeter()) as client:
            await run_rollout(
                environment.scenarios("all", 1, 0)[0],
                RolloutKey(1, 0, 0),
                RolloutPlan(
                    environment=environment,
                    runtime=HTTPRuntime(agent.url, gateway, client, Sampling("small")),
                    reward=paid,
                    seed=1,
                    limits=RolloutLimits(),
                ),
            )
            late = await asyncio.to_thread(kept[0], {"role": "user", "content": "hi"})
            await gateway.aclose()
        assert late["status"] == 401 and not model.requests


async def test_steps_record_the_parameters_of_each_call_and_its_early_end() -> None:
    def asks(asked: dict[str, Any], ask: Ask) -> str:
        user = {"role": "user", "content": asked["query"]}
        ask(user, temperature=0.2, max_tokens=50)
        return str(ask(user)["choices"][0]["message"]["content"])

    with ModelServer(brain=lambda _: "Answer: 391") as model, AgentServer(asks) as agent:
        model.will(act("answer", finish="length"))
        result = await rolled(agent, model)
    first, second, *_ = result.steps
    assert first.call == {"temperature": 0.2, "max_tokens": 50, "finish": "length"}
    assert second.call == {"temperature": 0.7, "max_tokens": 1024}


async def test_tools_and_streams_pass_through() -> None:
    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        function = {"name": "times", "arguments": '{"a": 17, "b": 23}'}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }

    def agentic(asked: dict[str, Any], ask: Ask) -> str:
        tools = [{"type": "function", "function": {"name": "times", "parameters": {"type": "object"}}}]
        user = {"role": "user", "content": [{"type": "text", "text": asked["query"]}]}
        answer = ask(user, tools=tools)["choices"][0]["message"]
        arguments = json.loads(answer["tool_calls"][0]["function"]["arguments"])
        result = {"role": "tool", "tool_call_id": "c", "content": str(arguments["a"] * arguments["b"])}
        chunks = ask(user, answer, result, tools=tools, stream=True)["chunks"]
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])

    with ModelServer(brain=brain) as model, AgentServer(agentic) as agent:
        found = await rolled(agent, model)
    assert found.success, (found.error, found.steps)
    assert found.steps[0].action == {"type": "tool", "tool": "times", "parameters": {"a": 17, "b": 23}}


def chat(text: str) -> tuple[str, dict[str, Any]]:
    return "chat/completions", {"messages": [{"role": "user", "content": text}]}


def words_of(events: list[dict[str, Any]]) -> str:
    """The text of a stream, of either interface."""
    chunks = [choice["delta"].get("content") or "" for one in events for choice in one.get("choices", [])]
    return "".join([*chunks, *(one["delta"] for one in events if one.get("type") == "response.output_text.delta")])


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_the_first_words_are_through_before_the_last_are_made(path: str) -> None:
    go, seen = threading.Event(), []
    body = chat("x")[1] if path == "chat/completions" else {"input": "x"}

    def reads(asked: dict[str, Any], ask: Ask) -> str:
        for event in ask.events(path, body):
            seen.append(event)
            if words_of(seen) == "Answer: ":
                go.set()  # only now does the model go on
        return words_of(seen)

    with ModelServer(brain=lambda _: "Answer: 391") as model, AgentServer(reads) as agent:
        model.will(act("in_two", go=go))
        meter = Purse(10**9)
        result = await rolled(agent, model, meter=meter)
    assert result.success, (result.error, seen)
    assert go.is_set() and words_of(seen) == "Answer: 391"
    assert result.steps[0].result["output"] == "Answer: 391" and result.steps[0].tokens > 0


@pytest.mark.parametrize(("fault", "begun"), [("cut_stream", True), ("error_500", False)])
async def test_a_stream_that_breaks_reports_the_break_at_its_place(fault: str, begun: bool) -> None:
    """Before its first words by the status, after them by an event; and the rollout waits for the model, as for any
    answer that did not come: sent events can't be taken back, so it is played again."""
    seen: list[Any] = []
    received = threading.Event()

    def reads(asked: dict[str, Any], ask: Ask) -> str:
        try:
            seen.extend(ask.events(*chat("x")))
        except urllib.error.HTTPError as error:
            seen.append({"status": error.code, **json.loads(error.read())})
        received.set()
        return "Answer: 391"

    with ModelServer(brain=lambda _: "one two three four five six") as model, AgentServer(reads) as agent:
        model.will(*[fault] * 5)
        with pytest.raises(Halted) as halted:
            await rolled(agent, model)
        assert await asyncio.to_thread(received.wait, 10)
    assert halted.value.reason == "waiting_for_llm"
    assert "error" in seen[-1] and ("status" in seen[-1]) != begun, seen
    assert (words_of(seen[:-1]) != "") == begun


async def test_more_calls_than_steps_are_refused_and_the_agent_may_still_answer() -> None:
    seen: list[int] = []

    def greedy(asked: dict[str, Any], ask: Ask) -> str:
        seen.extend(ask({"role": "user", "content": "more"})["status"] for _ in range(6))
        return "Answer: 391"

    with ModelServer() as model, AgentServer(greedy) as agent:
        result = await rolled(agent, model, limits=RolloutLimits(max_steps=4))
    assert seen == [200, 200, 200, 429, 429, 429]
    assert result.success and len(result.steps) == 4 and not result.truncated


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ((500, b"boom"), "agent: it answered with HTTP 500"),
        ((200, b"<html>"), "agent: it answered with something that is no JSON"),
        ((200, b'{"result": 1}'), 'agent: it answered without a text under "answer"'),
        ((200, b" " * (2**20 + 10)), "agent: it answered with more than 1 MB"),
    ],
)
async def test_the_agents_mistake_is_the_trajectorys_error(said: Any, error: str) -> None:
    with ModelServer() as model, AgentServer(lambda *_: said) as agent:
        result = await rolled(agent, model)
    assert not result.success and result.error.startswith(error)


async def test_an_agent_that_is_not_there_and_one_that_never_answers() -> None:
    def sleepy(asked: dict[str, Any], ask: Ask) -> str:
        time.sleep(3)
        return "late"

    with ModelServer() as model, AgentServer(sleepy) as agent:
        gone = await rolled(agent, model, url="http://127.0.0.1:9/")
        slow = await rolled(agent, model, limits=RolloutLimits(timeout_seconds=0.3))
    assert gone.error.startswith("agent: it can't be called")
    assert slow.error.startswith("timeout: over 0.3 s")


async def test_no_money_halts_the_run_for_any_reaction_of_the_agent() -> None:
    with ModelServer() as model, AgentServer(lambda asked, ask: str(ask({"role": "user", "content": "x"}))) as agent:
        with pytest.raises(Halted) as halted:
            await rolled(agent, model, meter=Purse(0))
        assert not model.requests
    assert halted.value.reason == "budget_exceeded"


async def test_a_pause_stops_an_agent_at_its_next_call() -> None:
    def stop() -> None:
        raise Interrupted("pause")

    with ModelServer() as model, AgentServer(plain) as agent:
        with pytest.raises(Interrupted):
            await rolled(agent, model, check=stop)
        assert not model.requests


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
        {"messages": [{"role": "assistant", "tool_calls": [7]}]},
        {"messages": [{"role": ["user"], "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": 7},
        {"messages": [{"role": "assistant", "tool_calls": 7}]},
        {"messages": [{"role": "user", "content": "x"}], "n": 2},
        {"messages": [{"role": "user", "content": "x"}], "stop": [7]},
        {"messages": [{"role": "user", "content": "x"}], "temperature": "warm"},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": -1},
        {"messages": [{"role": "user", "content": "x"}], "tool_choice": "some"},
        b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "x"}], "response_format": ' + b'{"a":' * 90 + b"1" + b"}" * 91,
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": "\xff"}',
        b"7",
    ],
)
async def test_a_bad_call_gets_a_400_that_says_why(body: dict[str, Any] | bytes) -> None:
    answers: list[dict[str, Any]] = []

    def sends(asked: dict[str, Any], ask: Ask) -> str:
        request = urllib.request.Request(
            f"{asked['base_url']}/chat/completions",
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            {"authorization": f"Bearer {asked['api_key']}"},
        )
        try:
            urllib.request.urlopen(request, timeout=5)
        except urllib.error.HTTPError as error:
            answers.append({"status": error.code, **json.loads(error.read())})
        return "Answer: 1"

    with ModelServer() as model, AgentServer(sends) as agent:
        result = await rolled(agent, model)
        assert not model.requests
    assert answers[0]["status"] == 400 and answers[0]["error"]["message"]
    assert [step.action["type"] for step in result.steps] == ["answer"]


async def test_a_number_that_is_none_of_json_is_a_400() -> None:
    seen: list[dict[str, Any]] = []

    def sends(asked: dict[str, Any], ask: Ask) -> str:
        body = b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"limit": 1e999}}'
        headers = {"authorization": f"Bearer {asked['api_key']}"}
        try:
            urllib.request.urlopen(urllib.request.Request(f"{asked['base_url']}/chat/completions", body, headers))
        except urllib.error.HTTPError as error:
            seen.append({"status": error.code, **json.loads(error.read())})
        return "Answer: 1"

    with ModelServer() as model, AgentServer(sends) as agent:
        result = await rolled(agent, model)
    assert seen[0]["status"] == 400 and "not finite" in seen[0]["error"]["message"]
    assert [step.action["type"] for step in result.steps] == ["answer"]  # what can't be read is no step


async def test_a_refusal_of_the_model_reaches_the_agent_and_is_a_failed_step() -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        seen.extend(ask({"role": "user", "content": "x"}) for _ in range(2))
        return "Answer: 391"

    too_long = {"message": "This model's maximum context length is 10 tokens.", "code": "context_length_exceeded"}
    with ModelServer() as model, AgentServer(asks) as agent:
        model.will(act("status", code=400, error=too_long), act("status", code=400, error={"message": "no such knob"}))
        result = await rolled(agent, model)
        assert len(model.requests) == 2
    assert [one["status"] for one in seen] == [400, 400]
    assert "maximum context length" in seen[0]["error"]["message"]
    assert [one["error"]["code"] for one in seen] == ["context_length_exceeded", "invalid_request_error"]
    assert [step.action["type"] for step in result.steps] == ["refused", "refused", "answer"]
    assert "maximum context length" in result.steps[0].result["error"] and result.success


@pytest.mark.parametrize(
    ("does", "status", "kind", "code", "param"),
    [
        ({"code": 400, "error": {"message": "no", "code": "unsupported_value", "param": "top_p"}},
         400, "invalid_request_error", "unsupported_value", "top_p"),
        ({"code": 422, "error": {"message": "no", "code": "bad_tool", "param": "tools"}},
         422, "invalid_request_error", "bad_tool", "tools"),
        ({"code": 403, "error": {"message": "Your input was flagged"}},
         403, "invalid_request_error", "content_filter", None),
        ({"code": 400, "error": {"message": "prompt is too long"}},
         400, "invalid_request_error", "context_length_exceeded", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("interface", ["chat", "responses"])
async def test_a_refusal_has_the_fields_that_the_gateway_gives(
    interface: str, does: dict[str, Any], status: int, kind: str, code: str, param: str | None
) -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        for stream in (False, True):
            if interface == "chat":
                seen.append(ask({"role": "user", "content": "x"}, stream=stream))
            else:
                seen.append(ask.response("x", stream=stream))
        return "Answer: 391"

    with ModelServer() as model, AgentServer(asks) as agent:
        model.will(*[act("status", **does)] * 2)
        result = await rolled(agent, model)
    assert [step.action["type"] for step in result.steps] == ["refused", "refused", "answer"]
    for one in seen:
        assert (one["status"], one["error"]["type"]) == (status, kind)
        assert (one["error"]["code"], one["error"]["param"]) == (code, param)


async def test_an_answer_that_can_t_be_used_has_its_code_too() -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        seen.append(ask({"role": "user", "content": "x"}))
        return "Answer: 391"

    with ModelServer() as model, AgentServer(asks) as agent:
        model.will("empty_choices")
        await rolled(agent, model)
    assert (seen[0]["status"], seen[0]["error"]["type"]) == (424, "upstream_error")


async def test_options_of_an_agents_request_are_passed_on() -> None:
    tools = [{"type": "function", "function": {"name": "times", "parameters": {"type": "object"}}}]

    def asks(asked: dict[str, Any], ask: Ask) -> str:
        user = {"role": "user", "content": "x"}
        ask(user, tools=tools, tool_choice="required", parallel_tool_calls=False, stop="END", n=1, max_tokens=7)
        return "Answer: 391"

    with ModelServer() as model, AgentServer(asks) as agent:
        await rolled(agent, model)
        sent = model.requests[0].body
    assert (sent["tool_choice"], sent["parallel_tool_calls"], sent["stop"]) == ("required", False, ["END"])
    assert sent["max_tokens"] == 7 and sent["tools"][0]["function"]["name"] == "times"


async def test_the_gateway_puts_the_context_into_the_calls_of_an_agent_that_drops_the_context() -> None:
    def drops(asked: dict[str, Any], ask: Ask) -> str:
        user = {"role": "user", "content": asked["query"]}
        ask(user)
        ask({"role": "developer", "content": "You multiply."}, user)
        ask.response(asked["query"], instructions="You multiply.")
        return "Answer: 391"

    context = PromptContext("Multiply by parts.", {"lessons": ["L1"], "logprob": -0.5})
    with ModelServer() as model, AgentServer(drops) as agent:
        given = {"system": "Be exact.", "context": lambda _key, _query: context}
        result = await rolled(agent, model, inject=True, **given)
        said = [one.body["messages"] for one in model.requests]
        sent = await rolled(agent, model, **given)
    head = "Be exact.\n\nMultiply by parts."
    assert [messages[0] for messages in said] == [
        {"role": "system", "content": head},
        *[{"role": "system", "content": f"{head}\n\nYou multiply."}] * 2,
    ]
    assert [len(messages) for messages in said] == [2, 2, 2] and agent.asked[0]["system"] == ""
    assert (
        result.steps[0].state["told"] == dict(context.note) and result.steps[0].state["observation"] == ROWS[0]["query"]
    )
    assert agent.asked[1]["system"] == head and "dropped_context" in sent.steps[-1].state


async def test_address_of_a_rollout_lists_the_one_model() -> None:
    listed: list[dict[str, Any]] = []

    def lists(asked: dict[str, Any], ask: Ask) -> str:
        headers = {"authorization": f"Bearer {asked['api_key']}"}
        with urllib.request.urlopen(urllib.request.Request(f"{asked['base_url']}/models", headers=headers)) as answer:
            listed.append(json.loads(answer.read()))
        return "Answer: 1"

    with ModelServer() as model, AgentServer(lists) as agent:
        result = await rolled(agent, model)
    assert [one["id"] for one in listed[0]["data"]] == ["small"] and len(result.steps) == 1


# -- the end of a rollout is the end of its calls ---------------------------------------------------------------------


def begun(asked: dict[str, Any], text: str = "late") -> tuple[socket.socket, bytes]:
    """A request whose head was sent, and the body that is still missing."""
    address = urlsplit(asked["base_url"])
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    sock = socket.create_connection((str(address.hostname), address.port or 80), timeout=5)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {asked['api_key']}\r\n"
    sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode())
    time.sleep(0.1)  # the gateway has looked the key up and waits for the body
    return sock, body


async def test_a_request_that_ends_after_the_rollout_calls_no_model() -> None:
    left: list[tuple[socket.socket, bytes]] = []

    def leaves(asked: dict[str, Any], ask: Ask) -> str:
        left.append(begun(asked))
        return "Answer: 391"

    environment, gateway, meter = dataset_environment(ROWS, {}), RolloutGateway(), FreeMeter()
    with ModelServer() as model, AgentServer(leaves) as agent:
        async with client_of(model, meter) as client:
            rollout = await run_rollout(
                environment.scenarios("all", 1, 0)[0],
                RolloutKey(1, 0, 0),
                RolloutPlan(
                    environment=environment,
                    runtime=HTTPRuntime(agent.url, gateway, client, Sampling("small")),
                    reward=paid,
                    seed=1,
                    limits=RolloutLimits(),
                ),
            )
            sock, body = left[0]
            await asyncio.to_thread(sock.sendall, body)
            status = await asyncio.to_thread(sock.recv, 100)
            sock.close()
            await gateway.aclose()
        assert b" 401 " in status and not model.requests
    assert meter.spent_micros == 0 and [step.action["type"] for step in rollout.steps] == ["answer"]


async def test_calls_under_way_when_the_agent_answers_are_waited_for_and_kept() -> None:
    def hasty(asked: dict[str, Any], ask: Ask) -> str:
        for number in range(3):
            sock, body = begun(asked, f"call {number}")
            sock.sendall(body)
        time.sleep(0.1)
        return "Answer: 391"

    meter = FreeMeter()
    with ModelServer(latency_s=0.6) as model, AgentServer(hasty) as agent:
        result = await rolled(agent, model, meter=meter)
        assert model.owed.answered == 3
    assert [step.action["type"] for step in result.steps] == ["message"] * 3 + ["answer"]
    assert {step.state["observation"] for step in result.steps[:3]} == {"call 0", "call 1", "call 2"}
    assert result.cost_micros == meter.spent_micros > 0 and meter.reserved_micros == 0 and result.success


async def test_a_time_out_waits_for_the_call_under_way_and_nothing_is_kept_afterwards() -> None:
    def hangs(asked: dict[str, Any], ask: Ask) -> str:
        sock, body = begun(asked)
        sock.sendall(body)
        time.sleep(4)
        return "late"

    with ModelServer(latency_s=1.0) as model, AgentServer(hangs) as agent:
        result = await rolled(agent, model, limits=RolloutLimits(timeout_seconds=0.5))
        steps = len(result.steps)
        await asyncio.sleep(1.0)
        assert len(model.requests) == 1
    assert result.error.startswith("timeout:") and len(result.steps) == steps == 1


async def test_an_agent_that_fails_without_its_model_was_refused_and_sees_the_services_code() -> None:
    seen: list[dict[str, Any]] = []

    def asks(asked: dict[str, Any], ask: Ask) -> Any:
        seen.append(ask({"role": "user", "content": "hi"}))
        return 500, b"no model"

    with ModelServer() as model, AgentServer(asks) as agent:
        model.will(
            act("status", code=400, error={"message": "not this", "code": "content_filter", "param": "messages"})
        )
        result = await rolled(agent, model)
        assert (seen[0]["status"], seen[0]["error"]["code"], seen[0]["error"]["param"]) == (
            400,
            "content_filter",
            "messages",
        )
        assert result.error == "refused: 400: not this"
        model.will(act("empty_choices"))
        result = await rolled(agent, model)
    assert seen[1]["status"] == 424  # a client would call again after a 502, and pay again
    assert result.error.startswith("agent: ")


async def test_other_programs_headers_and_addresses_reach_the_model_of_a_rollout() -> None:
    def asks(asked: dict[str, Any], ask: Ask) -> str:
        for header in ("api-key", "x-api-key"):
            request = ask._request("chat/completions/", {"messages": [{"role": "user", "content": "hi"}]})
            request.remove_header("Authorization")
            request.add_header(header, ask.key)
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert answer.status == 200
        request = urllib.request.Request(f"{ask.base_url}/models/small", headers={"api-key": ask.key})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return f"Answer: {json.loads(answer.read())['id']}"

    with ModelServer() as model, AgentServer(asks) as agent:
        result = await rolled(agent, model)
    assert result.error == "" and result.steps[-1].action["parameters"]["text"].endswith("small")
