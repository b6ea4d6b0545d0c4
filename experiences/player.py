"""An agent of a language model at work for one job: its client, its meter, its prices, its tools.

Made for one slice of work and one event loop. Every call is charged to organisation, agent and job.
"""

from __future__ import annotations

import uuid
from typing import Any

from budgets.llm.client import MeteredChatClient
from budgets.patience import PatientMeter
from budgets.pricebook import DatabasePriceBook
from budgets.spending import DatabaseMeter
from experiences.endpoints import BadEndpoint, endpoint_of_agent
from experiences.models import Agent
from experiences.runtimes.base import Halted
from experiences.runtimes.llm import ChatModel, LLMRuntime, Sampling
from experiences.tools.toolset import Toolset, python_tools


class ModelPlayer:
    """Makes the runtime by which an agent plays (``training.trainer.setup.Acting``).

    ``job_id`` is the job whose budget pays; ``attempt`` (with ``work``, a name for what is done) makes the keys of
    its calls its own. ``temperature`` given to a call of this object wins over the agent's.
    """

    def __init__(self, agent: Agent, *, job_id: uuid.UUID, work: str) -> None:
        self.agent, self.job_id, self.work = agent, job_id, work
        self.model = agent.model or (agent.endpoint.model if agent.endpoint else "")
        self._prices = DatabasePriceBook.load(agent.organization_id)
        self._toolset = Toolset(python_tools(agent.tools))
        self._meter: DatabaseMeter | None = None
        self._client: MeteredChatClient | None = None

    def __call__(self, policy: Any, *, temperature: float, max_steps: int, purpose: str) -> LLMRuntime:
        return LLMRuntime(
            model=self._calls(),
            sampling=Sampling(self.model, temperature, self.agent.max_tokens),
            philosophy=self.agent.philosophy,
            system=self.agent.system_prompt,
            toolset=self._toolset,
            key_prefix=f"{self.job_id}/{self.work}/{purpose}",
            purpose="training" if purpose == "training" else "evaluation",
        )

    async def aclose(self) -> None:
        """Waits until every settlement is written. In the loop in which it worked."""
        client, meter, self._client, self._meter = self._client, self._meter, None, None
        if client is not None:
            await client.aclose()
        if meter is not None:
            await meter.close()

    def _calls(self) -> ChatModel:
        """The client, made in the running loop at its first use."""
        if self._client is None:
            agent = self.agent
            try:
                endpoint = endpoint_of_agent(agent)
            except BadEndpoint as error:
                raise Halted("llm_refused", str(error)) from error
            self.model = endpoint.model
            self._meter = DatabaseMeter(organization_id=agent.organization_id, agent_id=agent.id, job_id=self.job_id)
            self._client = MeteredChatClient(endpoint, PatientMeter(self._meter), self._prices)
        return self._client
