"""Fields by which a caller would choose where a call goes, who pays or how much comes back: none reaches a service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from agentcore_site.tenancy.actors import Actor
from budgets.llm.types import DEARER, KINDS, NEVER_PASSED, Completion, Endpoint, Kind, ToolCall
from budgets.meter_port import Bill
from budgets.pricing import Usage
from evaluation.serving.gateway.passed_fields import BY_KIND, fields_check, images_check
from evaluation.serving.gateway.request import request_of
from evaluation.serving.gateway.responses import ResponsesInterface
from evaluation.serving.traces.content import answered
from experiences.agents.services.endpoints import endpoint_create, endpoint_update
from experiences.models import ModelEndpoint
from experiences.rollouts.runtimes.chat_body import BadCall
from experiences.rollouts.runtimes.responses_answer import response_json
from tests.evaluation.serving.production import ASKED, Production, production
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet, eventually

CHOSEN = "http://198.51.100.7/chosen-by-the-caller"


def said(**more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "?"} | more]


def shown(url: str) -> list[dict[str, Any]]:
    return said(content=[{"type": "image_url", "image_url": {"url": url}}])


FUNCTION = {"type": "function", "function": {"name": "add"}}
# Name of the field at fault, and a body that has it.
FIELDS: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: CHOSEN}) for name in NEVER_PASSED if "." not in name),
    ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 10**6}}),
    ("n", {"n": 128}),
    ("min_tokens", {"min_tokens": 10**6}),
    ("store", {"store": True}),
    ("prompt_logprobs", {"prompt_logprobs": 20}),
    ("echo", {"echo": True}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"a": CHOSEN}}),
    ("not_yet_invented", {"not_yet_invented": CHOSEN}),
    ("stream_options.chosen", {"stream": True, "stream_options": {"chosen": CHOSEN}}),
    ("tools.0.type", {"tools": [{"type": "web_search"}]}),
    ("tools.0.server_url", {"tools": [{"type": "mcp", "server_url": CHOSEN}]}),
    ("tools.0.cache_control", {"tools": [{**FUNCTION, "cache_control": {"type": "ephemeral"}}]}),
    ("functions.0.chosen", {"functions": [{"name": "add", "chosen": CHOSEN}]}),
    ("messages.0.cache_control", {"messages": said(cache_control={"type": "ephemeral"})}),
    ("messages.0.content.0.cache_control",
     {"messages": said(content=[{"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}}])}),
    ("messages.0.content.0.image_url.max_pixels",
     {"messages": said(content=[{"type": "image_url", "image_url": {"url": "data:,", "max_pixels": 10**9}}])}),
    ("messages", {"messages": shown("http://169.254.169.254/latest/meta-data/")}),
    ("messages", {"messages": shown("file:///etc/passwd")}),
    ("messages", {"messages": shown("http://127.0.0.1:5432/x.png")}),
]  # fmt: skip
OF_OPENROUTER: list[tuple[str, dict[str, Any]]] = [
    ("reasoning.max_tokens", {"reasoning": {"effort": "low", "max_tokens": 10**6}})
]
RESPONSES: list[tuple[str, dict[str, Any]]] = [
    (name, {name: CHOSEN}) for name in NEVER_PASSED if "." not in name and name != "max_output_tokens"
] + [("reasoning.max_tokens", {"reasoning": {"max_tokens": 10**6}}), ("max_tool_calls", {"max_tool_calls": 10**6})]


def endpoint(kind: Kind, **more: Any) -> Endpoint:
    return Endpoint("https://models.example.org/v1", "small", kind=kind, **more)


def refused(body: dict[str, Any], *endpoints: Endpoint) -> str | None:
    """The field for which a call is refused; None if it is not."""
    named = {f"endpoint {at}": one for at, one in enumerate(endpoints)}
    try:
        request = request_of({"model": "small", "messages": ASKED} | body)
        fields_check(request.body, named)
        if request.fetched_images:
            images_check(request.fetched_images, named)
    except BadCall as error:
        assert error.status == 400
        return error.param
    return None


@pytest.mark.parametrize(("field", "body"), FIELDS, ids=[field for field, _ in FIELDS])
def test_a_field_that_chooses_is_refused_by_name_at_each_kind_of_endpoint(field: str, body: dict[str, Any]) -> None:
    for kind in KINDS:
        assert refused(body, endpoint(kind)) == field, kind


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)


@pytest.mark.django_db(transaction=True)
def test_no_field_that_chooses_reaches_a_service(shop: Production, server: ModelServer, adam: Any) -> None:
    ours = {"user", "metadata", "max_tokens", "max_completion_tokens"}
    for kind in KINDS:
        endpoint_create(Actor(adam), name=kind, base_url=server.base_url, model="small", kind=kind)
        model = f"{kind}/small"
        with httpx.Client(headers={"authorization": f"Bearer {shop.key}"}) as client:
            for field, body in FIELDS + (OF_OPENROUTER if kind == "openrouter" else []):
                result = {"model": model, "messages": ASKED} | body
                answer = client.post(f"{shop.base_url}/chat/completions", json=result)
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), answer.text
            for field, body in RESPONSES:
                answer = client.post(f"{shop.base_url}/responses", json={"model": model, "input": "?"} | body)
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), answer.text
        assert not server.requests

        listed: dict[str, Any] = dict.fromkeys(BY_KIND[kind], 1)
        del listed["messages"], listed["model"], listed["stream"], listed["stream_options"]
        listed |= {"tools": [FUNCTION], "functions": [{"name": "add"}]}
        nothing = {"n": 1, "store": False, "service_tier": "auto", "audio": None}
        assert shop.ask(model=model, **listed, **nothing).status_code == 200
        received = server.requests.pop().body
        assert {name: received[name] for name in listed.keys() - ours} == {
            name: value for name, value in listed.items() if name not in ours
        }
        assert not received.keys() & {"user", "metadata", "max_tokens", *nothing}


@pytest.mark.django_db(transaction=True)
def test_an_admin_lets_another_field_pass_to_an_endpoint(shop: Production, server: ModelServer, adam: Any) -> None:
    field = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = shop.ask(model="small", **field)
    assert answer.status_code == 400 and "pass_fields" in answer.json()["error"]["message"]
    row = ModelEndpoint.objects.get(pk=shop.agent.endpoint_id)
    endpoint_update(Actor(adam), row, options={**row.options, "pass_fields": ["chat_template_kwargs"]})

    def passes() -> bool:
        return bool(shop.ask(model="small", **field).status_code == 200)

    eventually(passes, seconds=10, why="the gateway reads the endpoint again")
    assert server.requests[-1].body["chat_template_kwargs"] == field["chat_template_kwargs"]


@pytest.mark.parametrize("name", ["api_base", "n", "max_tokens", "chat_template"])
def test_no_admin_lets_a_field_pass_that_chooses(name: str) -> None:
    with pytest.raises(ValueError, match=f"pass_fields must not name {name}"):
        endpoint("openai", pass_fields=[name])
    with pytest.raises(ValueError, match="pass_fields is a list of names"):
        endpoint("openai", pass_fields=name)


def test_a_field_passes_only_where_each_endpoint_of_the_agent_accepts_that_field() -> None:
    assert refused({"top_k": 5}, endpoint("vllm")) is None
    assert refused({"top_k": 5}, endpoint("vllm"), endpoint("openai")) == "top_k"
    assert refused({"top_k": 5}, endpoint("vllm"), endpoint("openai", pass_fields=["top_k"])) is None
    cached = {"messages": said(cache_control={"type": "ephemeral"})}
    assert refused(cached, endpoint("portkey", pass_fields=("cache_control",))) is None


def test_images_are_fetched_by_public_services_from_public_addresses_alone() -> None:
    public, inline = shown("https://203.0.113.9.example.org/a.png"), shown("data:image/png;base64,AAAA")
    assert refused({"messages": public}, endpoint("openai")) is None
    for inside in (endpoint("vllm"), Endpoint("http://10.0.0.5/v1", "small"), Endpoint("http://gpu.internal/v1", "m")):
        assert refused({"messages": public}, inside) == "messages"
        assert refused({"messages": inline}, inside) is None


def test_the_fields_of_a_repeated_answer_go_back_without_those_of_a_library() -> None:
    answer = {"role": "assistant", "content": "!", "audio": None, "agentcore_steps": [], "provider_fields": {"a": 1}}
    body = {"model": "small", "messages": [*ASKED, answer, *ASKED]}
    assert refused(body, endpoint("openai")) is None
    sent = orjson.loads(request_of(body).for_model(endpoint("openai"), "", 40).body)
    assert sent["messages"] == [*ASKED, {"role": "assistant", "content": "!", "provider_fields": {"a": 1}}, *ASKED]


def test_functions_count_in_the_hold_as_tools_do() -> None:
    def held(**more: Any) -> int:
        return (
            request_of({"model": "small", "messages": ASKED} | more).for_model(endpoint("openai"), "", 40).prompt_tokens
        )

    assert held(functions=[{"name": "add"}] * 50) - held(functions=[{"name": "add"}]) > 49 * len('{"name":"add"},')
    assert DEARER.keys() < NEVER_PASSED.keys()


def test_fields_of_the_service_pass_through_both_interfaces_and_into_the_trace() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    call = ToolCall("c1", "f", {}, "{}", opaque=signed)
    bill = Bill(0, None, "none")
    found = Completion("Well.", (call,), "tool_calls", Usage(1, 1), 0, "m", 0, "i", bill, opaque={"x_state": [1]})
    row = answered(found)["response"]
    assert row["x_state"] == [1] and row["tool_calls"][0]["extra_content"] == signed["extra_content"]
    whole = response_json({}, found)["output"]
    for output in (whole, [*whole[1:], whole[0]]):  # a stream has the thoughts at its end
        result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
        read = orjson.dumps({"model": "small", "input": [{"role": "user", "content": "?"}, *output, result]})
        sent = orjson.loads(ResponsesInterface(read).request.for_model(endpoint("openai"), "", 40).body)["messages"]
        assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
        assert sent[1]["x_state"] == [1] and sent[1]["content"] == "Well."
        assert sent[1]["tool_calls"][0]["extra_content"] == signed["extra_content"]
