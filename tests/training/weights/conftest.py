"""One model made at random, and one model server for it, for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent
from tests.support.model_server_process import ModelServerProcess
from training.weights.random_model import random_model

PRICE = 1_000_000  # micro-dollars for a million tokens, of prompts, answers and training


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the extra [weights] is not installed")
    return random_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def model_server(model_folder: Path) -> Iterator[ModelServerProcess]:
    with ModelServerProcess(model_folder) as running:
        yield running


def agent_at(
    actor: Actor, model_server: ModelServerProcess, *, endpoint_options: dict[str, Any] | None = None, **changes: Any
) -> Agent:
    organization = actor.user.memberships.get().organization
    price_set(actor, model="tiny", organization=organization, input_micros=PRICE, output_micros=PRICE)
    endpoint = endpoint_create(
        actor,
        name="model_server",
        kind="weights",
        base_url=model_server.base_url,
        model="tiny",
        api_key=model_server.token,
        options=endpoint_options or {},
    )
    given = {"philosophy": "cot", "environment": "dataset", "max_tokens": 4} | changes
    return agent_create(actor, name="Tiny", runtime="llm", endpoint=endpoint, **given)


@pytest.fixture
def tiny_agent(adam: Any, model_server: ModelServerProcess) -> Agent:
    return agent_at(Actor(adam), model_server)
