"""The gateway as programs meet it: a process of its own on a socket, the ``openai`` package before it and a model's
server behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from agentcore_site.tenancy.actors import Actor
from tests.serving.production import ASKED, LESSON, Production, production
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, tmp_path: Path) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=str(tmp_path))


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

    # What the model heard: the release's prompt and context, then what the caller said.
    heard = server.requests[-1].body
    assert heard["messages"][0]["role"] == "system" and heard["messages"][1:] == ASKED
    assert heard["messages"][0]["content"].startswith("You answer customers.") and LESSON in str(heard)
    assert heard["model"] == "small" and heard["max_tokens"] == 20 and heard["temperature"] == 0.2
    assert "user" not in heard

    [trace] = shop.traces(1)
    assert str(trace.pk) == raw.headers["x-agentcore-trace-id"]
    assert (trace.status, trace.arm, trace.release_id) == ("ok", "current", shop.release.pk)
    assert (trace.asked, trace.answer, trace.session) == ("Where is my order?", "You said: Where is my order?", "u-1")
    assert trace.cost_micros == server.owed.micros > 0
    assert shop.paid(server.owed.micros) == server.owed.micros
    assert len(trace.told) == 1 and trace.hold and trace.duration_ms > 0 and trace.safety == 0


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
