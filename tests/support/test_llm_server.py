"""The model server of the tests itself: what others will rely on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import httpx

from tests.support.llm_acts import ACTS, act
from tests.support.llm_server import ModelServer

BODY = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}


def post(server: ModelServer, body: object = BODY, key: str = "k") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{server.base_url}/chat/completions", json=body, headers=headers, timeout=10, verify=False)


def test_a_brain_can_solve_tasks_and_use_tools() -> None:
    def brain(messages):
        if messages[-1]["role"] == "user":
            function = {"name": "times", "arguments": '{"a": 6, "b": 7}'}
            return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
        return f"It is {messages[-1]['content']}."

    with ModelServer(brain=brain) as server:
        first = post(server).json()["choices"][0]["message"]
        turns = [*BODY["messages"], first, {"role": "tool", "content": "42", "tool_call_id": "c"}]  # type: ignore[misc]
        assert first["tool_calls"][0]["function"]["name"] == "times"
        assert post(server, {**BODY, "messages": turns}).json()["choices"][0]["message"]["content"] == "It is 42."


def test_server_keeps_accounts_by_model_and_key() -> None:
    with ModelServer(prices={"small": (1_000_000, 2_000_000)}) as server:
        usage = post(server, key="a").json()["usage"]
        post(server, key="b")
        post(server, key="b")
        server.will("rate_limited")
        post(server, key="b")
    one, two = server.account("small", "a"), server.account("small", "b")
    assert one.micros == usage["prompt_tokens"] + 2 * usage["completion_tokens"] > 0
    assert (two.requests, two.answered, two.micros) == (3, 2, 2 * one.micros)
    assert server.owed.micros == 3 * one.micros


def test_server_stops_at_the_cap() -> None:
    with ModelServer(brain=lambda messages: "word " * 100) as server:
        value = post(server, {**BODY, "max_tokens": 7}).json()
    assert value["usage"]["completion_tokens"] == 7 and value["choices"][0]["finish_reason"] == "length"
    assert len(value["choices"][0]["message"]["content"]) < 40


def test_server_lists_models_and_refuses_strangers_and_nonsense() -> None:
    with ModelServer(prices={"m1": (0, 0)}, keys={"good"}) as server:
        listed = httpx.get(f"{server.base_url}/models", headers={"authorization": "Bearer good"})
        assert [one["id"] for one in listed.json()["data"]] == ["m1"]
        assert post(server, key="bad").status_code == 401
        assert post(server, {"model": "m1"}, key="good").status_code == 400
        assert post(server, {"model": "m1", "messages": []}, key="good").status_code == 400


def test_the_same_seed_draws_the_same_faults() -> None:
    def drawn(seed: int) -> list[int]:
        with ModelServer(faults={"error_503": 0.3, "rate_limited": 0.3}, seed=seed) as server:
            return [post(server).status_code for _ in range(30)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == {200, 429, 503}


def test_server_answers_well_again_when_the_script_is_over() -> None:
    with ModelServer() as server:
        server.will("error_500", act("rate_limited", retry_after=3))
        answers = [post(server) for _ in range(3)]
    assert [one.status_code for one in answers] == [500, 429, 200]
    assert answers[1].headers["retry-after"] == "3"
    assert {"answer", "hang", "reset", "slow_drip", "big", "redirect"} <= set(ACTS)


async def test_server_serves_an_asynchronous_test_and_frees_its_port() -> None:
    async with ModelServer() as server, httpx.AsyncClient() as http:
        answer = await http.post(f"{server.base_url}/chat/completions", json=BODY)
        assert answer.json()["choices"][0]["message"]["content"] == "You said: hello"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_server_runs_by_hand() -> None:
    command = [sys.executable, "-m", "tests.support.llm_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = process.stdout.readline().strip()
            answer = httpx.post(f"{base}/chat/completions", json=BODY, timeout=10)
            assert json.loads(answer.text)["model"] == "small"
        finally:
            process.terminate()
