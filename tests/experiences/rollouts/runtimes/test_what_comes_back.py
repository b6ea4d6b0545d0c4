"""Services that refuse the second turn unless their own fields come back: rules of Gemini 3, DeepSeek, Kimi, OpenRouter
and Mistral, imitated on a real socket, with our own agents and with foreign ones."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.experiences.rollouts.runtimes import test_http, test_llm
from tests.support.agent_server import AgentServer, Ask
from tests.support.llm_server import ModelServer

CALL = {"id": "c1", "type": "function", "function": {"name": "int_calc", "arguments": '{"text": "17 * 23"}'}}
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
DETAIL = {"type": "reasoning.text", "text": "hm", "signature": "abc", "index": 0, "format": "anthropic-claude-v1"}
RULES: dict[str, dict[str, Any]] = {
    "Gemini": {"content": None, "tool_calls": [CALL | SIGNED]},
    "Gemini, in the function": {"tool_calls": [CALL | {"function": CALL["function"] | {"thought_signature": "c2ln"}}]},
    "DeepSeek": {"content": "", "reasoning_content": "I need to multiply.", "tool_calls": [CALL]},
    "Kimi, an empty thought": {"content": "", "reasoning_content": "", "tool_calls": [CALL]},
    "OpenRouter": {"content": "", "reasoning": "hm", "reasoning_details": [DETAIL], "tool_calls": [CALL]},
    "a field that nobody knows": {"content": "Well.", "x_state": {"a": [1, {"b": None}]}, "tool_calls": [CALL]},
}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Well."}]
OWN = RULES | {"Mistral": {"content": PARTS, "tool_calls": [CALL]}}


class Strict:
    """A model that calls a tool, and refuses a conversation in which its message has changed."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = {"role": "assistant", **said}
        self.refused: list[Any] = []

    def __call__(self, messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        return copy.deepcopy(self.said)

    def refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        for message in body["messages"]:
            if message.get("tool_calls"):
                sent = {**message, "content": message.get("content") or None}
                if sent != {"content": None, **self.said, **({} if self.said.get("content") else {"content": None})}:
                    self.refused.append(message)
                    return {"message": "Function call is missing a thought_signature."}
        return None


@pytest.mark.parametrize("rule", OWN)
@pytest.mark.parametrize("philosophy", ["react", "multi_agent"])
async def test_our_own_agents_send_back_what_came(rule: str, philosophy: str) -> None:
    brain = Strict(OWN[rule])
    with ModelServer(brain=brain) as server:
        found = await test_llm.rolled(server, philosophy=philosophy)
    assert not brain.refused and not found.error
    assert any(step.action["tool"] == "int_calc" for step in found.steps)


def chats(asked: dict[str, Any], ask: Ask) -> str:
    user = {"role": "user", "content": asked["query"]}
    said = ask(user)["choices"][0]["message"]
    second = ask(user, said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "391"})
    return str(second["choices"][0]["message"]["content"])


def chats_streamed(asked: dict[str, Any], ask: Ask) -> str:
    user = {"role": "user", "content": asked["query"]}
    said: dict[str, Any] = {"content": ""}
    for chunk in ask(user, stream=True)["chunks"]:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            calls = [
                {name: one for name, one in call.items() if name != "index"} for call in delta.pop("tool_calls", ())
            ]
            said["content"] += delta.pop("content", None) or ""
            said |= delta
            said.setdefault("tool_calls", []).extend(calls)
    second = ask(user, said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "391"})
    return str(second["choices"][0]["message"]["content"])


def responds(asked: dict[str, Any], ask: Ask) -> str:
    given = [{"role": "user", "content": asked["query"]}]
    return _responded(ask, given, ask.response(given, store=False))


def responds_streamed(asked: dict[str, Any], ask: Ask) -> str:
    given = [{"role": "user", "content": asked["query"]}]
    return _responded(ask, given, ask.response(given, store=False, stream=True)["events"][-1]["response"])


def _responded(ask: Ask, given: list[Any], first: dict[str, Any]) -> str:
    [call] = [item for item in first["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "391"}
    second = ask.response([*given, *first["output"], result], store=False)
    [message] = [item for item in second["output"] if item["type"] == "message"]
    return str(message["content"][0]["text"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("works", [chats, chats_streamed, responds, responds_streamed])
async def test_foreign_agents_get_the_fields_and_their_fields_arrive(rule: str, works: Any) -> None:
    brain = Strict(RULES[rule])
    with ModelServer(brain=brain) as model, AgentServer(works) as agent:
        found = await test_http.rolled(agent, model)
    assert not brain.refused and found.success, (found.error, json.dumps(brain.refused))
