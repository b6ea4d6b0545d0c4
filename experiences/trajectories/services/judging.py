"""Verdicts on recorded trajectories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from asgiref.sync import async_to_sync

from agentcore_site.ids import uuid7
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.llm.client import MeteredChatClient
from budgets.llm.types import Endpoint
from budgets.metering.database_meter import DatabaseMeter, LedgerUnavailable
from budgets.metering.price_book import DatabasePriceBook
from experiences.agents.endpoint_config import BadEndpoint, endpoint_value
from experiences.models import Agent
from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.judge import JUDGE_TOKENS, Judge, verdict_on
from experiences.rollouts.rewards.base import VERDICT
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.types import Scenario, Trajectory


def trajectories_judged(actor: Actor, agent_id: Any, rubric: Rubric, trajectories: Sequence[Trajectory]) -> None:
    """Puts a verdict into the evidence of each trajectory of an agent, asked of its endpoint's models now and paid for
    like any call. What a scenario expects is not known any more: the judge goes by the rubric alone.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the judge can't be asked.
    """
    agent = Agent.objects.select_related("endpoint").get(pk=agent_id)
    require(actor, "agent.edit", agent.organization_id)
    try:
        value = endpoint_value(agent.endpoint, rubric.model or agent.model)
        prices = DatabasePriceBook.load(agent.organization_id)
        async_to_sync(_judged)(agent, value, prices, rubric, trajectories)
    except (BadEndpoint, Halted, LedgerUnavailable) as error:
        message = f"The judge can't be asked: {error}"
        raise Invalid(message, fields={"reward": message}) from error


async def _judged(
    agent: Agent, value: Endpoint, prices: DatabasePriceBook, rubric: Rubric, trajectories: Sequence[Trajectory]
) -> None:
    async with (
        DatabaseMeter(organization_id=agent.organization_id, agent_id=agent.id, lease=120) as meter,
        MeteredChatClient(value, meter, prices) as client,
    ):
        sampling = Sampling(value.model, 0.0, JUDGE_TOKENS)
        judge = Judge(client, sampling, threshold=rubric.threshold, calls=rubric.calls)
        prefix = f"try/{uuid7()}"
        found = await asyncio.gather(
            *(
                verdict_on(trajectory, rubric, Scenario(0, trajectory.query), judge, prefix)
                for trajectory in trajectories
            )
        )
    for one, verdict in zip(trajectories, found, strict=True):
        one.evidence = {**one.evidence, VERDICT: verdict}
