"""Shared parts of tests of playbooks: an agent with a model that suggests changes, and executions to learn from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.utils import timezone

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.releases.services import Unchanged, release_make
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, ContextDelta, Evolution, Playbook
from experiences.playbooks.services.executions import NewTrace, traces_record
from experiences.playbooks.services.playbooks import playbook_create, playbook_edit
from tests.support.llm_server import ModelServer

PRICE = (2_000_000, 8_000_000)  # micro-dollars per million tokens
SECTIONS = [
    {"category": "strategies", "content": "Read the whole order before answering a customer.", "confidence": 0.9},
    {
        "category": "failures",
        "content": "Refunds above the limit need a ticket number.",
        "confidence": 0.8,
    },
]

# Ten lessons, no two of them alike.
TEXTS = [
    "Check the stock before promising a delivery date.",
    "Ask for the order number when a customer names none.",
    "Refunds above one hundred euros need a second signature.",
    "Parcels to islands take two days longer than the table says.",
    "Never quote prices from memory; the catalogue changes weekly.",
    "Answer complaints with the next step and who takes it.",
    "The tracking tool fails for numbers with lower-case letters.",
    "Summarise long threads before asking a colleague.",
    "Invoices are corrected by a credit note and a new invoice.",
    "Returns without the original box lose a tenth of the price.",
]


def suggesting(*deltas: dict[str, Any]) -> str:
    """A model's answer that suggests these changes."""
    return json.dumps({"deltas": list(deltas)})


def add(content: str, *, category: str = "learnings", confidence: float = 0.8, **more: Any) -> dict[str, Any]:
    return {"type": "add", "category": category, "content": content, "confidence": confidence, **more}


def reflecting(*insights: dict[str, Any]) -> str:
    """A reflector's answer with these insights."""
    return json.dumps({"insights": list(insights)})


def insight(text: str, *, items: Mapping[str, str] | None = None, executions: Sequence[int] = ()) -> dict[str, Any]:
    tags = [{"id": id, "verdict": verdict} for id, verdict in (items or {}).items()]
    cause = "The answer named no place."
    return {"happened": "A customer asked again.", "root_cause": cause, "insight": text} | {
        "items": tags,
        "executions": list(executions),
    }


def model_agent(admin: Actor, server: ModelServer, name: str = "Clerk", **values: Any) -> Agent:
    """An agent of a language model at that server, with a price; ``values`` are further ones of its own."""
    organization = admin.user.memberships.get().organization
    price_set(admin, model="small", organization=organization, input_micros=PRICE[0], output_micros=PRICE[1])
    endpoint = endpoint_create(
        admin, name=f"of {name}", base_url=server.base_url, model="small", api_key="sk-test", options={"max_retries": 0}
    )
    values = {"environment": "dataset", "max_tokens": 40} | values
    return agent_create(admin, name=name, runtime="llm", endpoint=endpoint, **values)


def playbook_of(actor: Actor, agent: Agent, sections: Sequence[dict[str, Any]] = SECTIONS) -> Playbook:
    """The playbook of an agent that was switched on: new agents do not evolve."""
    agent.evolves = True
    agent.save(update_fields=["evolves"])
    return playbook_create(actor, agent=agent, initial_sections=sections)


def deployed(actor: Actor, playbook: Playbook) -> Playbook:
    """The playbook as it is now serves its agent, whose gate asks for nothing."""
    playbook.refresh_from_db()
    agent = playbook.agent
    with suppress(Unchanged):
        release = release_make(actor, agent, playbook_version=playbook.version)
        serving_change(actor, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
        deployment_start(actor, release, strategy="immediate")
    return playbook


def lived(actor: Actor, agent: Agent, n: int = 1, *, success: bool = True, **more: Any) -> None:
    """Records ``n`` executions, one by one."""
    for number in range(n):
        traces_record(
            actor,
            [
                NewTrace(
                    agent=agent,
                    inputs={"order": number, "question": "where is my parcel"},
                    outputs={"answer": "it is on its way"},
                    duration_ms=120.0 + number,
                    success=success,
                    **more,
                )
            ],
        )


def a_row_of_each_playbook_table(actor: Actor, agent: Agent, job: Job) -> Playbook:
    """A playbook with a version, a change, a delta, an execution, and an evolution by that job."""
    playbook = playbook_of(actor, agent)
    playbook_edit(actor, playbook, type="update", target="s1", content="Read the order and its notes first.")
    lived(actor, agent)
    Evolution.objects.create(organization=agent.organization, job=job, playbook=playbook, agent=agent)
    return playbook


def delta_waiting(playbook: Playbook, **values: Any) -> ContextDelta:
    """A suggested change that waits for a person."""
    given = {"type": "add", "category": "learnings", "content": "Weekend orders leave on Monday.", "confidence": 0.5}
    given |= {"state": "review", "reason": "its confidence is 0.50; 0.70 are needed", "by": "evolution abc123"}
    return ContextDelta.objects.create(
        organization_id=playbook.organization_id, playbook=playbook, agent_id=playbook.agent_id, **given | values
    )


def evolution_failed(playbook: Playbook, error: str = "The model gave no answer that can be used.") -> Evolution:
    """A dead letter."""
    job = Job.objects.create(
        organization_id=playbook.organization_id,
        kind="evolution",
        title=f"Evolve the playbook of {playbook.agent.name}",
        status="failed",
        error=error,
        finished_at=timezone.now(),
        exclusive_key=f"agent:{playbook.agent_id}",
    )
    return Evolution.objects.create(
        organization_id=playbook.organization_id, job=job, playbook=playbook, agent_id=playbook.agent_id, tries=1
    )


def evolutions() -> list[Job]:
    return list(Job.objects.filter(kind="evolution").order_by("created_at"))
