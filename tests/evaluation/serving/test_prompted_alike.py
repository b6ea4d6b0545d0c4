"""A release is prompted in production as it was while it was measured: byte for byte, at the model's own server."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.models import Reservation
from budgets.services import price_set
from evaluation.models import EvaluationResult
from evaluation.services import evaluation_start
from evaluation.serving.models import AgentServing, Release
from evaluation.serving.releases.bundle import digest
from evaluation.serving.releases.presenters import served_as
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.services import release_make
from evaluation.serving.traces.presenters import conversation
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.agents.services.tool_servers import tool_server_archive, tool_server_create, tool_server_update
from experiences.models import Agent, TrajectoryRecord
from experiences.rollouts.conversations import conversation_text
from tests.evaluation.serving.production import Production
from tests.factories import ExperienceFactory
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.mcp_server import MCPHTTP
from tests.support.playbooks import PRICE
from tests.support.running import run_to_end
from tests.support.workers import Fleet, eventually
from training.models import PolicyCheckpoint
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

LESSON = "When numbers are added, add the ones first."
ROWS = [{"query": f"What is {n} + {n + 3}?", "expected_outcome": {"answer": 2 * n + 3}} for n in range(20)]
CONFIG = {
    "n_iterations": 1,
    "batch_size": 1,
    "n_trajectories_per_query": 2,
    "eval_samples": 1,
    "eval_temperature": 0.25,
    "max_budget_usd": 0.5,
    "selection_share": 0.1,
    "selection_least": 1,
    "context": {"propose": False, "gate_samples": 1, "gate_steps": 1, "accept_weak_gate": True},
    "seed": 3,
}
TOOLS = {"tools": ["calculator"]}
WHOLE = pytest.mark.thorough(reason="a job, an evaluation and a web process each")


def adding(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
    """A model that adds: by its tool where it is instructed to use one, and aloud where it is to end in "Answer:"."""
    a, b = re.findall(r"(\d+) \+ (\d+)", " ".join(str(one["content"]) for one in messages[1:]))[0]
    instructed = str(messages[0]["content"])
    if "Use the tools" in instructed and messages[-1]["role"] == "user":
        function = {"name": "calculator", "arguments": json.dumps({"text": f"{a} + {b}"})}
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    total = int(a) + int(b)
    return f"I add.\nAnswer: {total}" if "Answer:" in instructed else f"VERDICT: right, {total}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=adding, prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def endpoint(adam: Any, acme: Any, server: ModelServer) -> Any:
    admin = Actor(adam)
    price_set(admin, model="small", organization=acme, input_micros=PRICE[0], output_micros=PRICE[1])
    return endpoint_create(admin, name="models", base_url=server.base_url, model="small", api_key="sk-1")


def made(admin: Actor, endpoint: Any, **values: Any) -> Agent:
    agent = agent_create(
        admin, name="Adder", runtime="llm", environment="dataset", endpoint=endpoint, max_tokens=60,
        system_prompt="You add numbers.", **values,
    )  # fmt: skip
    ExperienceFactory(agent=agent, summary=LESSON)
    return agent


def proven(
    operator: Actor, agent: Agent, server: ModelServer, rows: Sequence[dict[str, Any]] = ROWS
) -> tuple[str, list[bytes]]:
    """Runs a job and its held-out evaluation. Returns a held-out query, and the bodies of its last rollout."""
    run = run_start(operator, agent=agent, rows=list(rows), config=CONFIG)
    assert run_to_end(run.job).status == Status.COMPLETED
    evaluation = evaluation_start(operator, run=run)
    before = len(server.requests)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    query = EvaluationResult.objects.filter(evaluation=evaluation, arm="trained").order_by("scenario").last().query
    asked = [one for one in list(server.requests)[before:] if query.split("\n")[0] in str(one.body["messages"])]
    seeds = [one.body["seed"] for one in asked]
    assert len(set(seeds)) == 1  # both arms draw alike, and act alike: no lesson was learned
    return query, [one._raw for one in asked[len(asked) // 2 :]]


def served(fleet: Fleet, admin: Actor, agent: Agent, journal: str) -> Production:
    checkpoint = PolicyCheckpoint.objects.filter(agent=agent).order_by("iteration").last()
    release = release_make(admin, agent, checkpoint=checkpoint)
    AgentServing.objects.create(organization=agent.organization, agent=agent, release=release)
    _, key = api_key_create(admin, name="shop", scopes=["gateway:call"])
    extra = {"GATEWAY_JOURNAL": journal}
    return Production(agent, release, key, fleet.web(**extra), extra)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"philosophy": "react", **TOOLS},
        pytest.param({"philosophy": "cot"}, marks=WHOLE),
        pytest.param({"philosophy": "autonomous", **TOOLS}, marks=WHOLE),
        pytest.param({"philosophy": "multi_agent", **TOOLS}, marks=WHOLE),
    ],
    ids=lambda values: values.get("philosophy", "by default"),
)
def test_the_gateway_sends_what_the_proof_sent(
    fleet: Fleet, adam: Any, operator: Actor, endpoint: Any, server: ModelServer, journal: str, values: dict[str, Any]
) -> None:
    agent = made(Actor(adam), endpoint, **values)
    query, sent = proven(operator, agent, server)
    shop = served(fleet, Actor(adam), agent, journal)
    before = len(server.requests)
    asked = {"messages": [{"role": "user", "content": query}], "seed": json.loads(sent[0])["seed"]}
    answer = shop.ask(**asked).json()["choices"][0]["message"]["content"]
    assert [one._raw for one in list(server.requests)[before:]] == sent
    first = json.loads(sent[0])
    assert first["temperature"] == 0.25 and LESSON in first["messages"][0]["content"]
    a, b = map(int, re.findall(r"\d+", query))
    if values:
        assert answer == str(a + b)  # what was graded
    else:
        assert (agent.philosophy, answer) == ("chat", f"VERDICT: right, {a + b}")
        assert first["messages"][0]["content"].startswith("You add numbers.\n\nWhat was learned")
        assert "Answer:" not in str(first) and "step by step" not in str(first)


def test_images_of_a_query_reach_the_model_in_the_proof_as_at_the_gateway(
    fleet: Fleet, adam: Any, operator: Actor, endpoint: Any, server: ModelServer, journal: str
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
    rows = []
    for row in ROWS:
        said = [{"role": "user", "content": [{"type": "text", "text": row["query"]}, image]}]
        rows.append(row | {"query": conversation_text(said), "metadata": {"messages": said}})
    rows = [row | {"expected_outcome": {"contains": [str(row["expected_outcome"]["answer"])]}} for row in rows]
    agent = made(Actor(adam), endpoint)
    query, sent = proven(operator, agent, server, rows)
    content = [{"type": "text", "text": query.split("\n")[0]}, image]
    assert json.loads(sent[0])["messages"][-1] == {"role": "user", "content": content}
    training = [one.body["messages"][-1]["content"] for one in server.requests]
    assert all(one[1:] == [image] for one in training)
    steps = str(list(TrajectoryRecord.objects.values_list("steps", flat=True)))
    assert "data:image/png;base64, 12 characters" in steps and "iVBOR" not in steps
    shop = served(fleet, Actor(adam), agent, journal)
    before = len(server.requests)
    shop.ask(messages=[{"role": "user", "content": content}], seed=json.loads(sent[0])["seed"])
    assert [one._raw for one in list(server.requests)[before:]] == sent


@pytest.mark.parametrize(
    ("values", "image", "reason"),
    [
        ({"philosophy": "react"}, "data:image/png;base64,iVBORw0KGgo=", "philosophy react"),
        ({"runtime": "http", "url": "http://127.0.0.1:9/act"}, "data:image/png;base64,iVBORw0KGgo=", "over HTTP"),
        ({}, "https://example.org/a.png", "within a private network: put the images into the file"),
    ],
    ids=["another philosophy", "an agent over HTTP", "a service within"],
)
def test_a_launch_with_images_that_would_not_arrive_is_refused(
    adam: Any, operator: Actor, endpoint: Any, values: dict[str, Any], image: str, reason: str
) -> None:
    said = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}]
    row = {"query": conversation_text(said), "metadata": {"messages": said}, "expected_outcome": {"answer": "a cat"}}
    agent = made(Actor(adam), endpoint)
    Agent.objects.filter(pk=agent.pk).update(**values)
    agent.refresh_from_db()
    with pytest.raises(Invalid, match=f"The queries hold images.*{reason}"):
        run_start(operator, agent=agent, rows=[row] * 20, config=CONFIG)


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, endpoint: Any, journal: str) -> Production:
    agent = made(Actor(adam), endpoint, philosophy="react", **TOOLS)
    return served(fleet, Actor(adam), agent, journal)


QUERY = [
    {"role": "user", "content": "Be brief."}, {"role": "assistant", "content": "I am."},
    {"role": "user", "content": [{"type": "text", "text": "What is 2 + 40?"}]},
]  # fmt: skip


def test_a_loop_at_the_gateway_is_paid_for_and_traced_as_steps(shop: Production, server: ModelServer) -> None:
    client = openai.OpenAI(base_url=shop.base_url, api_key=shop.key, max_retries=0)
    name = f"agent:{shop.agent.slug}"
    chunks = list(client.chat.completions.create(model=name, messages=QUERY, stream=True, max_tokens=20))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "42"
    [first, second] = server.requests
    assert [one["role"] for one in first.body["messages"]] == ["system", "user", "assistant", "user"]
    assert first.body["max_tokens"] == 20 and first.body["tools"][0]["function"]["name"] == "calculator"
    assert second.body["messages"][-1] == {"role": "tool", "content": "42", "tool_call_id": "call_1"}
    assert "seed" not in first.body and "temperature" not in first.body  # nothing was measured

    answer = client.responses.create(model=name, input="What is 3 + 4?")
    assert answer.output_text == "7" and answer.usage.input_tokens > 0
    one, other = shop.traces(2)
    assert [step["action"]["type"] for step in one.response["agentcore_steps"]] == ["tool", "answer"]
    assert (one.answer, one.status, one.streamed, one.attempts) == ("42", "ok", True, 2)
    assert one.cost_micros + other.cost_micros == server.owed.micros
    assert shop.paid(server.owed.micros) == server.owed.micros
    assert one.input_tokens + other.input_tokens == server.owed.prompt_tokens

    # A comment at each step keeps the stream alive.
    text = shop.ask(messages=QUERY, stream=True).text
    assert text.count(": working") == 2 and text.endswith("data: [DONE]\n\n")


def test_a_loop_refuses_what_would_not_reach_its_calls(shop: Production, server: ModelServer) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for body, param in (
        ({"tools": [tool]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "user", "content": [image]}]}, "messages.0.content"),
        ({"messages": QUERY[:2]}, "messages"),
        ({"messages": [*QUERY, {"role": "tool", "tool_call_id": "1", "content": "4"}]}, "messages.3"),
    ):
        refused = shop.ask(**({"messages": QUERY} | body))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert not server.requests


def test_a_loop_that_comes_to_no_answer_is_a_refusal_for_which_clients_pay_once(
    shop: Production, server: ModelServer
) -> None:
    server.will(*["tool_calls"] * 30)
    refused = shop.ask(messages=QUERY)
    assert refused.status_code == 424 and "20 steps" in refused.text
    [failed] = shop.traces(1)
    assert [step["action"]["type"] for step in failed.response["agentcore_steps"]] == ["tool"] * 20
    assert failed.input_tokens > 0 and failed.attempts == 20 and "content" not in failed.response
    assert [one.role for one in conversation(failed)][-2:] == ["tool", "tool"]  # the steps, and no answer
    server.script.clear()
    server.will(*[act("answer", message={"content": ""})] * 3)
    assert "unusable answers in a row" in shop.ask(messages=QUERY).text
    server.will(act("answer", message={"content": ""}))  # the model is asked again, as in a job
    assert shop.ask(messages=QUERY).json()["choices"][0]["message"]["content"] == "42"
    server.will(act("status", code=400, error={"message": "too hot", "code": "hot"}))
    assert shop.ask(messages=QUERY).json()["error"] == {
        "message": "400: too hot", "type": "invalid_request_error", "param": None, "code": "hot"
    }  # fmt: skip
    assert shop.paid(server.owed.micros) == server.owed.micros == sum(one.cost_micros for one in shop.traces(4))


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_whose_caller_goes_away_keeps_its_steps_and_cost(
    shop: Production, server: ModelServer, stream: bool
) -> None:
    server.will("tool_calls", "hang")
    body = json.dumps({"model": f"agent:{shop.agent.slug}", "messages": QUERY, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {shop.key}\r\n"
    with socket.create_connection(("127.0.0.1", shop.port), timeout=20) as caller:
        caller.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: len(server.requests) == 2 and server.inside == 1, seconds=20, every=0.01)
    eventually(lambda: not server.inside, seconds=10, every=0.01, why="the call of the second step ended")
    eventually(lambda: not Reservation.objects.filter(state="held").exists(), seconds=20, why="all holds settled")
    [trace] = shop.traces(1)
    assert (trace.status, trace.error) == ("interrupted", "the caller went away")
    assert [step["action"]["type"] for step in trace.response["agentcore_steps"]] == ["tool"]
    assert trace.input_tokens > 0 and "content" not in trace.response
    assert shop.paid(trace.cost_micros) == trace.cost_micros > server.owed.micros > 0  # the second call at its hold
    assert shop.ask(messages=QUERY).json()["choices"][0]["message"]["content"] == "42"


def test_a_key_with_a_months_budget_pays_for_each_call_of_a_loop(
    shop: Production, server: ModelServer, adam: Any
) -> None:
    _, shop.key = api_key_create(Actor(adam), name="small", scopes=["gateway:call"], monthly_micros=50_000)
    assert shop.ask(messages=QUERY).status_code == 200
    paid = server.owed.micros
    _, shop.key = api_key_create(Actor(adam), name="tiny", scopes=["gateway:call"], monthly_micros=1_000)
    server.will(*["tool_calls"] * 30)
    refused = shop.ask(messages=QUERY)
    assert refused.status_code == 402, refused.text
    assert 1_000 <= server.owed.micros - paid < 3_000  # it ended at its month, not at its steps


def test_a_release_of_an_earlier_version_is_served_without_instructions(shop: Production, server: ModelServer) -> None:
    stored = {name: value for name, value in shop.release.bundle.items() if name != "play"}
    earlier = Release.objects.create(
        organization=shop.agent.organization, agent=shop.agent, number=9, digest="d", bundle=stored, source="agent"
    )
    AgentServing.objects.update(release=earlier)
    time.sleep(1.5)  # what is served is believed for a second
    assert shop.ask(messages=QUERY).json()["choices"][0]["message"]["content"].startswith("VERDICT")
    assert server.requests[-1].body["messages"][1:] == QUERY
    assert "Use the tools" not in str(server.requests[-1].body) and "tools" not in server.requests[-1].body
    assert digest(bundle_of(earlier).as_json()) == digest(stored)
    assert served_as(bundle_of(earlier)).startswith("Made by an earlier version: the gateway sends prompt")


def test_tools_of_a_tool_server_are_called_at_the_gateway(
    fleet: Fleet, adam: Any, endpoint: Any, server: ModelServer, journal: str
) -> None:
    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        function = {"name": "sums__add", "arguments": json.dumps({"a": 2, "b": 40})}
        return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}

    server.brain = brain
    with MCPHTTP(legacy=True) as offering:
        tools = tool_server_create(Actor(adam), name="sums", url=offering.url, token="tok-1", tools=["add"])
        agent = made(Actor(adam), endpoint, tool_servers=[tools])
        assert agent.philosophy == "react"
        shop = served(fleet, Actor(adam), agent, journal)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: shop.ask(messages=QUERY), range(8)))
        assert [one.json()["choices"][0]["message"]["content"] for one in answers] == ["42"] * 8
        assert {one.get("authorization") for one in offering.seen} == {"Bearer tok-1"}
        introduced = [one for one in offering.seen if "mcp-session-id" not in one]
        assert shop.ask(messages=QUERY).status_code == 200
        assert [one for one in offering.seen if "mcp-session-id" not in one] == introduced  # the connection is kept
        tool_server_update(Actor(adam), tools, token="tok-2")
        time.sleep(1.5)  # what is served is believed for a second
        assert shop.ask(messages=QUERY).status_code == 200
        assert offering.seen[-1]["authorization"] == "Bearer tok-2"
    refused = shop.ask(messages=QUERY)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5") and "sums" in refused.text
    tool_server_archive(Actor(adam), tools)
    time.sleep(1.5)  # what is served is believed for a second
    gone = shop.ask(messages=QUERY)
    assert gone.status_code == 503 and "Without its tool servers the release can't act. Gone: sums" in gone.text
