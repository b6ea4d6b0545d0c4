"""An agent of a language model with lessons and a playbook, to be released."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from experiences.models import Agent
from tests.factories import AgentFactory, ExperienceFactory, ModelEndpointFactory
from tests.support.callers import Caller
from tests.support.playbooks import playbook_of


@pytest.fixture
def agent(acme: Organization, olivia: Any, operator: Actor) -> Agent:
    endpoint = ModelEndpointFactory(organization=acme, name="Zanzibar models")
    made: Agent = AgentFactory(
        organization=acme,
        created_by=olivia,
        name="Support clerk",
        slug="clerk",
        runtime="llm",
        environment="dataset",
        endpoint=endpoint,
        system_prompt="You answer customers.",
        tools=["calculator"],
    )
    ExperienceFactory(agent=made, handle="x0000000001", summary="When an order is late, say when it comes.")
    ExperienceFactory(
        agent=made, handle="x0000000002", summary="When it is only tried, say nothing.", status="proposed"
    )
    playbook_of(operator, made)
    return made


@pytest.fixture
def api(olivia: Any) -> Caller:
    return Caller(olivia)


@pytest.fixture
def console(olivia: Any) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(olivia)
    return client


@pytest.fixture(scope="session")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway") / "journal"


@pytest.fixture
def journal(journals: Path) -> str:
    """A gateway's folder, empty. All have one name: their processes begin loaded (``tests.support.warm_start``)."""
    shutil.rmtree(journals, ignore_errors=True)
    journals.mkdir()
    return str(journals)
