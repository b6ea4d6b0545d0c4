"""A gateway that serves a release of a language model's agent, for the tests of production."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.services import api_key_create
from budgets.models import LedgerEntry
from evaluation.serving.models import AgentServing, ProductionTrace, Release
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests.factories import ExperienceFactory
from tests.support.llm_server import ModelServer
from tests.support.playbooks import model_agent
from tests.support.workers import Fleet, eventually

LESSON = "When an order is late, say when it comes."
ASKED = [{"role": "user", "content": "Where is my order?"}]


@dataclass
class Production:
    """An agent whose release is served at ``base_url`` by a process of its own."""

    agent: Agent
    release: Release
    key: str
    port: int
    extra: dict[str, str]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(self, **more: Any) -> httpx.Response:
        """Posts a chat completion with these fields; ``headers`` are those of the request."""
        headers = more.pop("headers", {})
        return self.post("chat/completions", {"messages": ASKED} | more, headers)

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        """Posts ``body`` for the agent, unless it names another model."""
        body = {"model": f"agent:{self.agent.slug}"} | body
        headers = {"authorization": f"Bearer {self.key}"} | (headers or {})
        return httpx.post(f"{self.base_url}/{path}", json=body, headers=headers, timeout=60)

    def traces(self, n: int) -> list[ProductionTrace]:
        """The newest traces, oldest first, once there are ``n`` in all."""
        rows = ProductionTrace.objects.filter(organization=self.agent.organization)
        eventually(lambda: rows.count() >= n, seconds=20, why=f"{n} traces")
        return list(rows.order_by("id"))

    def paid(self, micros: int) -> int:
        """The spending in the ledger, once it is at least ``micros``."""

        def spent() -> int:
            entries = LedgerEntry.objects.filter(organization_id=self.agent.organization_id)
            return sum(one.spent_delta_micros + one.debt_delta_micros for one in entries)

        eventually(lambda: spent() >= micros, seconds=20, why=f"{micros} micro-dollars in the ledger")
        return spent()


def production(fleet: Fleet, admin: Actor, server: ModelServer, organization: Organization, **extra: str) -> Production:
    agent = model_agent(admin, server)
    agent.system_prompt = "You answer customers."
    agent.save()
    ExperienceFactory(agent=agent, summary=LESSON)
    release = release_make(admin, agent)
    AgentServing.objects.create(organization=organization, agent=agent, release=release)
    _, key = api_key_create(admin, name="shop", scopes=["gateway:call"])
    return Production(agent, release, key, fleet.web(**extra), extra)


def until(what: Callable[[], Any], seconds: float) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    eventually(what, seconds=seconds, every=0.02)
    return time.monotonic() - began
