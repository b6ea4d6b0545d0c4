"""LangChain, Pydantic AI and the ``openai`` package's Responses before the gateway, unchanged: only their base address
and key are ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import orjson
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from pydantic_ai import Agent as TypedAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.gateway.responses import ResponsesInterface
from experiences.rollouts.runtimes.chat_body import BadCall
from tests.evaluation.serving.production import LESSON, Production, production
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db(transaction=True)
QUESTION = "Where is order 7?"


class Verdict(BaseModel):
    """The shop's note on an order."""

    late: bool
    days: int


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)


def calls_the_tool(server: ModelServer) -> None:
    server.will(act("tool_calls", name="days_late", arguments='{"order": 7}'))


def received(server: ModelServer) -> list[dict[str, Any]]:
    """The conversation as the model got it last, which the release's prompt and context begin."""
    first, *rest = server.requests[-1].body["messages"]
    assert first["role"] == "system" and LESSON in first["content"]
    return rest


def test_langchain(shop: Production, server: ModelServer) -> None:
    @tool
    def days_late(order: int) -> int:
        """The days by which an order is late."""
        return 3

    model = ChatOpenAI(
        model=f"agent:{shop.agent.slug}", base_url=shop.base_url, api_key=SecretStr(shop.key), max_retries=0
    )
    answer = model.invoke(QUESTION)
    assert answer.content == f"You said: {QUESTION}" and answer.usage_metadata
    pieces = list(model.stream(QUESTION, stream_usage=True))
    assert len(pieces) > 3 and "".join(str(one.content) for one in pieces) == f"You said: {QUESTION}"
    assert any(one.usage_metadata for one in pieces)

    talk: list[BaseMessage] = [HumanMessage(QUESTION)]
    for streamed in (False, True):
        calls_the_tool(server)
        asker = model.bind_tools([days_late])
        if streamed:
            first, *more = asker.stream(talk)
            called: Any = sum(more, first)
        else:
            called = asker.invoke(talk)
        assert called.tool_calls == [{"name": "days_late", "args": {"order": 7}, "id": "call_1", "type": "tool_call"}]
    talk += [AIMessage("", tool_calls=called.tool_calls), ToolMessage("3", tool_call_id="call_1")]
    assert model.invoke(talk).content == "You said: 3"
    assert [one["role"] for one in received(server)] == ["user", "assistant", "tool"]

    server.will(act("answer", message={"role": "assistant", "content": '{"late": true, "days": 3}'}))
    assert model.with_structured_output(Verdict).invoke(QUESTION) == Verdict(late=True, days=3)
    assert server.requests[-1].body["response_format"]["type"] == "json_schema"
    assert {one.status for one in shop.traces(6)} == {"ok"}


async def test_pydantic_ai(shop: Production, server: ModelServer) -> None:
    provider = OpenAIProvider(base_url=shop.base_url, api_key=shop.key)
    model = OpenAIChatModel(f"agent:{shop.agent.slug}", provider=provider)
    clerk = TypedAgent(model, instructions="Be short.")

    @clerk.tool_plain
    def days_late(order: int) -> int:
        """The days by which an order is late."""
        return 3

    calls_the_tool(server)
    done = await clerk.run(QUESTION)
    assert done.output == "You said: 3" and done.usage.requests == 2
    assert [one["role"] for one in received(server)] == ["system", "user", "assistant", "tool"]

    calls_the_tool(server)
    async with clerk.run_stream(QUESTION) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1 and "".join(pieces) == "You said: 3"

    calls = act("tool_calls", name="final_result", arguments='{"late": true, "days": 3}')
    server.will(calls)
    typed = await TypedAgent(model, output_type=Verdict).run(QUESTION)
    assert typed.output == Verdict(late=True, days=3)


def test_responses_of_the_openai_package(shop: Production, server: ModelServer) -> None:
    client = openai.OpenAI(base_url=shop.base_url, api_key=shop.key, max_retries=0)
    name = f"agent:{shop.agent.slug}"
    answer = client.responses.create(model=name, input=QUESTION, instructions="Be short.", metadata={"shop": "1"})
    assert answer.output_text == f"You said: {QUESTION}" and answer.status == "completed"
    assert answer.usage is not None and answer.usage.output_tokens > 0 and answer.metadata == {"shop": "1"}
    assert [one["role"] for one in received(server)] == ["system", "user"]

    with client.responses.stream(model=name, input=QUESTION) as stream:
        pieces = [one.delta for one in stream if one.type == "response.output_text.delta"]
    assert len(pieces) > 3 and "".join(pieces) == stream.get_final_response().output_text == f"You said: {QUESTION}"

    schema: Any = {"type": "object", "properties": {"order": {"type": "integer"}}}
    tools: Any = [{"type": "function", "name": "days_late", "parameters": schema, "strict": False}]
    talk: Any = [{"role": "user", "content": QUESTION}]
    for streamed in (False, True):
        calls_the_tool(server)
        if streamed:
            with client.responses.stream(model=name, input=talk, tools=tools) as stream:
                events = list(stream)
                called: Any = stream.get_final_response()
        else:
            called = client.responses.create(model=name, input=talk, tools=tools)
        (call,) = called.output
        assert (call.type, call.name, call.arguments) == ("function_call", "days_late", '{"order": 7}')
    pieces = [one.delta for one in events if one.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 1 and "".join(pieces) == '{"order": 7}'  # as they came, and the whole is what they make
    function = {"name": "days_late", "parameters": schema, "strict": False}
    assert server.requests[-1].body["tools"] == [{"type": "function", "function": function}]
    talk += [call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "3"}]
    assert client.responses.create(model=name, input=talk).output_text == "You said: 3"
    assert [one["role"] for one in received(server)] == ["user", "assistant", "tool"]

    server.will(act("answer", message={"role": "assistant", "content": '{"late": true, "days": 3}'}))
    typed = client.responses.parse(model=name, input=QUESTION, text_format=Verdict)
    assert typed.output_parsed == Verdict(late=True, days=3)
    assert server.requests[-1].body["response_format"]["json_schema"]["name"] == "Verdict"
    patch = "*** Begin Patch\n+1\n*** End Patch"
    custom: Any = [{"type": "custom", "name": "apply_patch", "description": "Edits files."}]
    for streamed in (False, True):
        server.will(act("tool_calls", name="apply_patch", arguments=json.dumps({"input": patch})))
        asked: dict[str, Any] = {"model": name, "input": QUESTION, "tools": custom, "store": True}
        if streamed:
            with client.responses.stream(**asked) as stream:
                events = list(stream)
                called = stream.get_final_response()
        else:
            called = client.responses.create(**asked)
        (edit,) = called.output
        assert (edit.type, edit.name, edit.input) == ("custom_tool_call", "apply_patch", patch)
        assert called.to_dict()["store"] is False  # nothing is kept, and the answer says so
    deltas: Any = [one for one in events if one.type == "response.custom_tool_call_input.delta"]
    assert "".join(one.delta for one in deltas) == patch
    talk = [{"role": "user", "content": QUESTION}, edit.to_dict()]
    talk += [{"type": "custom_tool_call_output", "call_id": edit.call_id, "output": "Done."}]
    assert client.responses.create(model=name, input=talk, tools=custom).output_text == "You said: Done."
    with pytest.raises(openai.NotFoundError, match="send the whole input"):
        client.responses.retrieve(called.id)
    picture = "data:image/png;base64,iVBORw0KGgo="
    parts: Any = [
        {"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": picture, "detail": "low"}
    ]  # fmt: skip
    client.responses.create(model=name, input=[{"role": "user", "content": parts}])
    assert received(server)[-1]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
    ]
    talk = [{"role": "user", "content": QUESTION}, edit.to_dict()]
    talk += [{"type": "custom_tool_call_output", "call_id": edit.call_id, "output": parts}]
    client.responses.create(model=name, input=talk, tools=custom)
    called, result, shown = received(server)[-3:]
    assert called["tool_calls"] and (result["role"], result["content"]) == ("tool", "What is this?")
    assert shown["role"] == "user" and shown["content"][1]["image_url"] == {"url": picture, "detail": "low"}
    first, *_, last = shop.traces(11)
    assert ResponsesInterface(orjson.dumps({"model": name, "input": talk})).request.query == QUESTION
    assert first.metadata == {"shop": "1"} and last.status == "ok"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}, "input.0"),
        (
            {"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "https://a.b/c"}]}]},
            "input.0",
        ),
    ],
)
def test_a_field_without_a_place_in_a_chat_completion_is_refused_by_name(asked: dict[str, Any], field: str) -> None:
    body = {"model": "agent:clerk", "input": QUESTION} | asked
    with pytest.raises(BadCall) as refused:
        ResponsesInterface(orjson.dumps(body))
    assert (refused.value.status, (refused.value.param or "")[: len(field)]) == (400, field)


def test_a_response_that_breaks_off_says_so(shop: Production, server: ModelServer) -> None:
    client = openai.OpenAI(base_url=shop.base_url, api_key=shop.key, max_retries=0)
    server.will(act("status", code=400, error={"message": "too hot", "type": "invalid_request_error"}))
    with pytest.raises(openai.BadRequestError, match="too hot"):
        client.responses.create(model=f"agent:{shop.agent.slug}", input=QUESTION, stream=True)
    server.will("cut_stream")
    with pytest.raises(openai.APIError, match="cut"):
        list(client.responses.create(model=f"agent:{shop.agent.slug}", input=QUESTION, stream=True))
    server.will("cut_stream")
    asked = {"model": f"agent:{shop.agent.slug}", "input": QUESTION, "stream": True}
    read = httpx.post(f"{shop.base_url}/responses", json=asked, headers={"api-key": shop.key}).text
    events = [orjson.loads(line.removeprefix("data: ")) for line in read.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"] and "event: error\n" in read
