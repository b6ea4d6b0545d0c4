"""The gateway as programs meet it: a process of its own on a socket, the ``openai`` package before it and a model's
server behind it."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.models import Budget, Reservation
from budgets.services import budget_set_limit
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.models import AgentServing, CanaryObservation, Deployment, ProductionTrace
from evaluation.serving.releases.services import release_make
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, ModelEndpoint
from experiences.rollouts.captured import SampledTokens
from tests.evaluation.serving.production import ASKED, LESSON, Production, production
from tests.factories import ExperienceFactory
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.proxy import Proxy
from tests.support.workers import Fleet, environment, eventually

KILLS = int(os.environ.get("KILLS", "3"))
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)


def client_of(shop: Production) -> openai.OpenAI:
    return openai.OpenAI(base_url=shop.base_url, api_key=shop.key, max_retries=0)


def test_the_openai_package_asks_an_agent_by_its_name(shop: Production, server: ModelServer) -> None:
    client = client_of(shop)
    assert f"agent:{shop.agent.slug}" in [one.id for one in client.models.list()]
    raw = client.chat.completions.with_raw_response.create(
        model=f"agent:{shop.agent.slug}", messages=ASKED, user="u-1", temperature=0.2, max_tokens=20
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == "You said: Where is my order?"
    assert (raw.headers["x-agentcore-release"], raw.headers["x-agentcore-arm"]) == ("1", "current")

    # The model received the release's prompt and context, then the caller's message.
    received = server.requests[-1].body
    assert received["messages"][0]["role"] == "system" and received["messages"][1:] == ASKED
    assert received["messages"][0]["content"].startswith("You answer customers.") and LESSON in str(received)
    assert received["model"] == "small" and received["max_tokens"] == 20 and received["temperature"] == 0.2
    assert "user" not in received

    [trace] = shop.traces(1)
    assert str(trace.pk) == raw.headers["x-agentcore-trace-id"]
    assert (trace.status, trace.arm, trace.release_id) == ("ok", "current", shop.release.pk)
    assert (trace.asked, trace.answer, trace.session) == ("Where is my order?", "You said: Where is my order?", "u-1")
    assert trace.cost_micros == server.owed.micros > 0
    assert shop.paid(server.owed.micros) == server.owed.micros
    assert len(trace.told) == 1 and trace.hold and trace.duration_ms > 0 and trace.safety == 0

    # A trace of the caller's goes on to the model.
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.chat.completions.create(
        model=f"agent:{shop.agent.slug}", messages=ASKED, extra_headers={"traceparent": theirs}
    )
    assert server.requests[-1].headers["traceparent"] == theirs


def test_the_first_words_are_through_before_the_last_are_made(shop: Production, server: ModelServer) -> None:
    go = threading.Event()
    server.will(act("in_two", go=go))
    stream = client_of(shop).chat.completions.create(model=f"agent:{shop.agent.slug}", messages=ASKED, stream=True)
    texts = []
    for chunk in stream:
        assert chunk.choices  # no event of usage, which was not asked for
        texts.append(chunk.choices[0].delta.content or "")
        if texts[-1]:
            go.set()  # only now the server writes the rest
    assert go.is_set() and "".join(texts) == "You said: Where is my order?"
    [trace] = shop.traces(1)
    assert trace.streamed and 0 < trace.first_token_ms <= trace.duration_ms
    assert trace.cost_micros == server.owed.micros


def test_words_of_a_refusal_and_its_status_are_the_models_own(shop: Production, server: ModelServer) -> None:
    client = client_of(shop)
    server.will(act("status", code=400, error={"message": "too hot", "type": "invalid_request_error"}))
    with pytest.raises(openai.BadRequestError, match="too hot"):
        client.chat.completions.create(model=f"agent:{shop.agent.slug}", messages=ASKED)
    server.will(act("rate_limited", retry_after=7))
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model=f"agent:{shop.agent.slug}", messages=ASKED)
    assert limited.value.response.headers["retry-after"] in {"7", "8"}
    first, second = shop.traces(2)
    assert (first.status, first.http_status, first.cost_micros) == ("refused", 400, 0)
    assert (second.status, second.http_status) == ("refused", 429)


def test_the_gateway_refuses_unauthorised_and_malformed_requests_itself(
    shop: Production, server: ModelServer, adam: Any, charlie: Any
) -> None:
    assert shop.ask(headers={"authorization": "Bearer ac_wrong"}).status_code == 401
    _, narrow = api_key_create(Actor(adam), name="narrow", scopes=["training:view"])
    assert shop.ask(headers={"authorization": f"Bearer {narrow}"}).status_code == 403
    _, other = api_key_create(Actor(charlie), name="other", scopes=["gateway:call"])
    assert shop.ask(headers={"authorization": f"Bearer {other}"}).status_code == 404
    for body, param in (
        ({"n": 3}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"model": 7}, "model"),
    ):
        answer = shop.ask(**body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    assert shop.ask(model="agent:no-such").status_code == 404
    assert not server.requests
    budget_set_limit(Actor(adam), organization=shop.agent.organization, limit_micros=1, agent_id=shop.agent.pk)
    refused = shop.ask()
    assert refused.status_code == 402 and "budget does not allow this call" in refused.json()["error"]["message"]
    assert not server.requests and shop.traces(1)[0].http_status == 402


def test_tools_images_and_what_else_the_model_knows_go_through(shop: Production, server: ModelServer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 300_000}}
    said = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    server.will("tool_calls")
    answer = shop.ask(messages=said, tools=[tool], seed=3, logit_bias={"5": 1}).json()
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    received = server.requests[-1].body
    assert received["messages"][1:] == said and received["tools"] == [tool]
    assert (received["seed"], received["logit_bias"]) == (3, {"5": 1})
    [trace] = shop.traces(1)
    assert "AAAA" not in str(trace.request) and "[image]" in str(trace.request)
    assert trace.response["tool_calls"][0]["function"]["name"] == "add"


def test_traces_hold_no_personal_data_and_nothing_of_an_agent_that_may_not_be_recorded(
    shop: Production, server: ModelServer
) -> None:
    mine = [{"role": "user", "content": "I am jo.doe@example.org, card 4111 1111 1111 1111"}]
    shop.ask(messages=mine, user="jo.doe@example.org", metadata={"mail": "jo.doe@example.org"})
    shop.traces(1)  # it is stored with what it said
    shop.agent.collects = False
    shop.agent.save()
    shop.ask(messages=mine)  # the gateway believes the old consent for a second
    time.sleep(1.5)
    shop.ask(messages=mine)
    first, *others = shop.traces(3)
    kept = f"{first.request} {first.response} {first.session} {first.metadata}"
    assert "jo.doe" not in kept and "4111" not in kept and "[email]" in kept and first.session
    assert first.safety == 0  # it repeats its prompt
    for trace in others:
        assert (trace.request, trace.response, trace.metadata) == ({}, {}, {}) and trace.cost_micros > 0


def test_a_plain_model_goes_by_its_name_under_the_same_budget(shop: Production, server: ModelServer) -> None:
    answer = shop.ask(model="small", stream=True, stream_options={"include_usage": True})
    events = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]" and '"usage"' in events[-2]
    assert answer.headers["x-accel-buffering"] == "no"
    assert server.requests[-1].body["messages"] == ASKED  # nothing beside it
    [trace] = shop.traces(1)
    assert (trace.agent_id, trace.release_id, trace.arm) == (None, None, "")
    assert shop.paid(server.owed.micros) == server.owed.micros


def test_another_endpoint_answers_where_the_first_does_not(shop: Production, server: ModelServer, adam: Any) -> None:
    with ModelServer(prices={"small": PRICE}) as spare:
        other = endpoint_create(Actor(adam), name="spare", base_url=spare.base_url, model="small", api_key="sk-2")
        AgentServing.objects.filter(agent=shop.agent).update(fallbacks=[other.pk])
        time.sleep(1.5)
        server.will("error_503", "error_503")
        assert shop.ask().status_code == 200
        [trace] = shop.traces(1)
        assert (trace.endpoint, trace.status, trace.attempts) == ("spare", "ok", 3)
        assert len(spare.requests) == 1
        # A request that no model would take is not carried on.
        server.will(act("status", code=400))
        assert shop.ask().status_code == 400 and len(spare.requests) == 1


def test_tokens_are_kept_with_a_trace_where_the_endpoint_gives_them(
    shop: Production, adam: Any, server: ModelServer
) -> None:
    ModelEndpoint.objects.filter(pk=shop.agent.endpoint_id).update(options={"capture_tokens": True})
    capturing = release_make(Actor(adam), Agent.objects.get(pk=shop.agent.pk))
    AgentServing.objects.filter(agent=shop.agent).update(release=capturing)
    time.sleep(1.2)
    choice = {"message": {"content": "Ask the carrier."}, "finish_reason": "stop", "token_ids": [7, 8]}
    choice["logprobs"] = {"content": [{"logprob": -1.0}, {"logprob": -0.5}]}
    answer = {"value": {"prompt_token_ids": [1, 2, 3], "choices": [choice]}}
    server.will(act("json_body", **answer), act("json_body", **answer))
    assert shop.ask().status_code == 200
    personal = [{"role": "user", "content": "Write to ann.lee@example.org."}]
    assert shop.ask(messages=personal).status_code == 200
    assert all(one.body["return_token_ids"] for one in server.requests)
    plain, redacted = sorted(shop.traces(2), key=lambda one: one.created_at)
    assert SampledTokens.unpacked(plain.sampled, None) == SampledTokens((1, 2, 3), (7, 8), (-1.0, -0.5))
    assert redacted.sampled == ""  # tokens say what the text does


def test_sessions_stay_with_their_arm_through_a_canary(shop: Production, adam: Any, olivia: Any) -> None:
    ExperienceFactory(agent=shop.agent, handle="x0000000077", summary="When nothing helps, say so.")
    second = release_make(Actor(adam), shop.agent)
    Deployment.objects.create(
        organization=shop.agent.organization,
        agent=shop.agent,
        release=second,
        previous=shop.release,
        strategy="canary",
        share=0.5,
        rule=DeploymentRule().as_json(),
    )
    time.sleep(1.2)
    arms = {f"s-{n}": shop.ask(user=f"s-{n}").headers["x-agentcore-arm"] for n in range(12)}
    assert set(arms.values()) == {"new", "current"}
    assert all(shop.ask(headers={"x-session-id": name}).headers["x-agentcore-arm"] == arm for name, arm in arms.items())
    traces = shop.traces(24)
    assert {one.told[-1] for one in traces if one.arm == "new"} == {"x0000000077"}
    assert CanaryObservation.objects.count() == 12  # a session counts once
    assert {one.new for one in CanaryObservation.objects.all()} == {True, False}


@pytest.mark.thorough(reason="another program, killed")
def test_a_process_that_is_killed_loses_no_trace_and_no_cent(
    shop: Production, fleet: Fleet, server: ModelServer
) -> None:
    """Killed under load at random moments, taken up by the next process."""
    rng, answered = random.Random(5), set[str]()
    guard = threading.Lock()

    def load(stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(httpx.HTTPError):
                answer = shop.ask(user=str(rng.random()))
                if answer.status_code == 200:
                    with guard:
                        answered.add(answer.headers["x-agentcore-trace-id"])

    server.latency_s = 0.05
    for _ in range(KILLS):
        stop, before = threading.Event(), len(answered)
        threads = [threading.Thread(target=load, args=(stop,)) for _ in range(8)]
        for one in threads:
            one.start()
        eventually(lambda n=before: len(answered) > n + 20, seconds=60, why="calls are answered")
        time.sleep(rng.random())
        fleet.kill(fleet.processes[-1])
        stop.set()
        for one in threads:
            one.join()
        shop.port = fleet.web(**shop.extra)
    shop.ask()  # the journals are finished once the gateway is asked
    rows = ProductionTrace.objects.filter(organization=shop.agent.organization)
    eventually(lambda: rows.count() >= server.owed.requests, seconds=90, why="a trace for each request")
    assert answered <= {str(pk) for pk in rows.values_list("pk", flat=True)}
    assert rows.filter(status="interrupted").exists()
    eventually(lambda: not Reservation.objects.filter(state="held").exists(), seconds=90, why="all holds settled")
    spent = shop.paid(server.owed.micros)
    assert spent >= server.owed.micros  # calls cut off in their midst are charged their worst case
    finished = sum(rows.filter(status="ok").values_list("cost_micros", flat=True))
    assert finished <= server.owed.micros <= spent


@pytest.mark.thorough(reason="a whole run, or a second program")
def test_with_the_database_away_the_gateway_answers_as_far_as_the_agent_allows(
    fleet: Fleet, adam: Any, acme: Any, server: ModelServer, tmp_path: Path
) -> None:
    with Proxy(environment()["DATABASE_URL"]) as database:
        extra = {"GATEWAY_JOURNAL": str(tmp_path), "DATABASE_URL": database.url}
        shop = production(fleet, Actor(adam), server, acme, **extra)
        assert shop.ask().status_code == 200
        time.sleep(3)  # its block was settled by then
        database.cut()
        time.sleep(1.5)
        refused = shop.ask()
        assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
        database.heal()

        AgentServing.objects.filter(agent=shop.agent).update(while_away_micros=2_000)  # a few worst cases
        eventually(lambda: shop.ask().status_code == 200, seconds=20)
        time.sleep(3)
        paid = server.owed.micros
        database.cut()
        time.sleep(1.5)
        answers = [shop.ask() for _ in range(30)]
        codes = [one.status_code for one in answers]
        assert codes[0] == 200 and codes[-1] == 503 and sorted(codes) == codes  # then its allowance is used up
        assert 0 < server.owed.micros - paid <= 2_000
        database.heal()
        # Nothing is lost: the ledger and the traces hear of it.
        assert shop.paid(server.owed.micros) == server.owed.micros
        answered = {one.headers["x-agentcore-trace-id"] for one in answers if one.status_code == 200}
        known = ProductionTrace.objects.filter(pk__in=answered)
        eventually(lambda: known.count() == len(answered), seconds=20)
        assert budget_spent(shop) == server.owed.micros


def budget_spent(shop: Production) -> int:
    response = Budget.objects.get(organization=shop.agent.organization, scope="organization")
    return response.spent_micros + response.debt_micros
