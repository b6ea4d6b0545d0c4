"""A test call of an agent over HTTP: does it answer, how fast, what, and does its context reach its model?"""

from __future__ import annotations

import copy
import secrets
from dataclasses import dataclass
from typing import Final

from asgiref.sync import async_to_sync
from django.conf import settings

from agentcore_site.audit.services import record
from agentcore_site.ids import uuid7
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.row_checks import check_secrets_stay
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.vault import Unsealable, sealed
from budgets.llm.client import MeteredChatClient
from budgets.llm.retry import RetryPolicy
from budgets.llm.types import Endpoint
from budgets.metering.database_meter import DatabaseMeter, LedgerUnavailable
from budgets.metering.price_book import DatabasePriceBook
from experiences.agents.endpoint_config import BadEndpoint, endpoint_of_agent
from experiences.agents.http_agents import agent_headers, context_arrival_set
from experiences.learning.lessons.library import Lesson
from experiences.learning.rendering import context_of
from experiences.lessons.services.packs import system_text
from experiences.models import Agent, ModelEndpoint
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, run_rollout
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.arrival import context_arrived
from experiences.rollouts.runtimes.base import Halted, PromptContext
from experiences.rollouts.runtimes.gateway import RolloutGateway
from experiences.rollouts.runtimes.http import HTTPRuntime
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.types import RolloutKey, Trajectory

QUESTION: Final = "What is 17 + 25? Reply with the number."
LIMITS: Final = RolloutLimits(max_steps=8, timeout_seconds=30)
MAX_SHOWN: Final = 500


@dataclass(frozen=True)
class AgentTest:
    """Result of a test call. ``calls`` are the agent's calls of its model, for ``cost_micros``.
    ``context_arrives``: whether one of them held the context that it was sent (None: there was no answer)."""

    ok: bool
    message: str
    answer: str = ""
    latency_ms: int = 0
    calls: int = 0
    cost_micros: int = 0
    context_arrives: bool | None = None


def agent_test(
    actor: Actor,
    agent: Agent | None,
    *,  # the fields of the REST request
    url: str = "",
    authorization: str = "",
    inject_context: bool | None = None,
    endpoint: ModelEndpoint | None = None,
    model: str = "",
) -> AgentTest:
    """Gives an agent over HTTP one small task, with a key that is good for this call; its calls are paid for like any
    others. What is given here counts instead of what is stored, so that a form can be tried before it is saved.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: there is no address.
        Invalid: the address may not be called, or is on another host than the stored authorization is for.
    """
    home = agent.organization if agent is not None else current_organization(actor)
    require(actor, "agent.edit", home)
    stored = agent.url if agent is not None else ""
    tried = copy.copy(agent) if agent is not None else Agent(organization=home)
    tried.url = url.strip() or stored
    if not tried.url:
        message = "Say where the agent takes its tasks."
        raise Conflict(message, fields={"url": message})
    if tried.url != stored or authorization:
        require(actor, "endpoint.edit", home)  # our server calls that address from inside
        check_address("url", tried.url, before=stored)
    if authorization:
        tried.authorization = sealed(authorization.strip())
    check_secrets_stay(
        tried, ["authorization"], given=["authorization"] if authorization else [], before=stored, after=tried.url
    )
    if inject_context is not None:
        tried.inject_context = inject_context
    tried.endpoint, tried.model = endpoint or tried.endpoint, model or tried.model
    try:
        value, headers = endpoint_of_agent(tried), agent_headers(tried)
        trajectory = async_to_sync(_tried)(tried, value, headers, DatabasePriceBook.load(home.id))
    except (BadEndpoint, Unsealable, Halted, LedgerUnavailable, ValueError) as error:
        found = AgentTest(False, str(error))
    else:
        found = _agent_test(trajectory)
    if agent is not None and (tried.url, tried.inject_context) == (stored, agent.inject_context):
        context_arrival_set(agent, found.context_arrives)
    seen = {"url": tried.url, "ok": found.ok, "context_arrives": found.context_arrives}
    record(actor, "agent.tested", agent or home, organization=home, after=seen)
    return found


async def _tried(agent: Agent, value: Endpoint, headers: dict[str, str], prices: DatabasePriceBook) -> Trajectory:
    environment = dataset_environment([{"query": QUESTION, "expected_outcome": {"answer": 42}}], {})
    stored = None if agent._state.adding else agent.id
    gateway = RolloutGateway(settings.ROLLOUT_GATEWAY_HOST, settings.ROLLOUT_GATEWAY_ADVERTISED)
    try:
        async with (
            DatabaseMeter(organization_id=agent.organization_id, agent_id=stored, lease=120) as meter,
            MeteredChatClient(value, meter, prices, retry=RetryPolicy(max_retries=0, total_s=20)) as client,
        ):
            runtime = HTTPRuntime(
                url=agent.url,
                gateway=gateway,
                model=client,
                sampling=Sampling(value.model, max_tokens=min(agent.max_tokens, 1024)),
                system=system_text(agent),
                context=lambda _key, _query: _marked(),
                headers=headers,
                max_steps=LIMITS.max_steps,
                key_prefix=f"test/{uuid7()}",
                purpose="test",
                inject=agent.inject_context,
            )
            plan = RolloutPlan(environment, runtime, rewards.get("outcome")({}), seed=0, limits=LIMITS)
            return await run_rollout(environment.rows[0], RolloutKey(0, 0, 0), plan)
    finally:
        await gateway.aclose()


def _marked() -> PromptContext:
    """A context as a run sends one, with a word that the agent can't have from anywhere else."""
    lesson = Lesson("test", f"When something is to be added, the reference of this task is {secrets.token_hex(8)}.")
    return PromptContext(context_of([lesson]), {"lessons": [lesson.handle]})


def _agent_test(trajectory: Trajectory) -> AgentTest:
    calls = [step for step in trajectory.steps if step.action["type"] != "answer"]
    answer = "" if trajectory.error else str(trajectory.steps[-1].action["parameters"].get("text", ""))
    return AgentTest(
        ok=not trajectory.error,
        message=trajectory.error or "It answers.",
        answer=answer[:MAX_SHOWN],
        latency_ms=round(trajectory.duration_ms),
        calls=len(calls),
        cost_micros=trajectory.cost_micros,
        context_arrives=None if trajectory.error else context_arrived([trajectory]),
    )
