"""An agent of a language model at work for one job: its client, its meter, its prices, its tools.

Made for one slice of work and one event loop. Every call is charged to organisation, agent and job.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final

from django.conf import settings

from agentcore_site.vault import Unsealable
from budgets.job_chain import job_spent_micros
from budgets.llm.client import MeteredChatClient
from experiences.agents.http_agents import agent_headers
from experiences.agents.model_clients import JobClients
from experiences.agents.model_server_client import ModelServerClient, OwnModel
from experiences.agents.toolset_of import AgentTools
from experiences.learning.lessons.prompts import ReflectionOptions
from experiences.learning.lessons.reflection import Reflector
from experiences.lessons.services.packs import system_text
from experiences.models import Agent
from experiences.models import AgentRuntime as Kind
from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.judge import JUDGE_TOKENS, Judge, JudgingRuntime
from experiences.rollouts.own_weights import weights_of
from experiences.rollouts.runtimes.base import ContextSource, Halted, Runtime
from experiences.rollouts.runtimes.first_refusals import FirstRefusals, WatchedRuntime
from experiences.rollouts.runtimes.gateway import RolloutGateway
from experiences.rollouts.runtimes.http import HTTPRuntime
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.runtimes.llm.calls import ChatModel
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS, Instructions
from experiences.rollouts.structured_output import Asker, ModelAnswer

REFLECTION_TOKENS: Final = 1024  # of an answer with several lessons
REFLECTION_TEMPERATURE: Final = 0.3


class RuntimeFactory:
    """Makes the runtime by which an agent plays (``training.trainer.setup.RuntimeMaker``).

    ``job_id`` is the job whose budget pays; ``attempt`` (with ``work``, a name for what is done) makes the keys of
    its calls its own. ``temperature`` given to a call of this object wins over the agent's. Where answers have to be
    judged, its endpoint's models judge; what attempts teach is asked of its reflector. ``tools``: others than those
    that it has now. ``instructions``: those of a release. ``judged_by``: whose model judges in place of its own.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        job_id: uuid.UUID,
        work: str,
        tools: AgentTools | None = None,
        instructions: Instructions = INSTRUCTIONS,
        judged_by: RuntimeFactory | None = None,
    ) -> None:
        self.agent, self.job_id, self.work, self._instructions = agent, job_id, work, instructions
        self.model = agent.model or (agent.endpoint.model if agent.endpoint else "")
        self._system = system_text(agent)
        self._tools = tools or AgentTools(agent)
        self.clients = JobClients(agent, job_id=job_id)
        self._refusals = FirstRefusals()
        self._judged_by = judged_by
        self._gateway: RolloutGateway | None = None
        self._model_server: ModelServerClient | None = None

    def __call__(self, policy: ContextSource, *, temperature: float, max_steps: int, purpose: str) -> Runtime:
        if self.agent.runtime == Kind.HTTP:
            runtime: Runtime = self._foreign(policy, temperature, max_steps, purpose)
        else:
            runtime = self._llm(policy, temperature, purpose)
        return JudgingRuntime(WatchedRuntime(runtime, self._refusals), self.judge, self._prefix(purpose))

    def judge(self, rubric: Rubric) -> Judge:
        """The judge that a rubric asks for: the agent's own model, or another one at the same endpoint."""
        if self._judged_by is not None:
            return self._judged_by.judge(rubric)
        client = self._calls(rubric.model)
        sampling = Sampling(rubric.model or self.model, 0.0, JUDGE_TOKENS)
        return Judge(client, sampling, threshold=rubric.threshold, calls=rubric.calls)

    def reflector(
        self,
        options: ReflectionOptions,
        *,
        recall: Callable[[str, str], ModelAnswer | None],
        keep: Callable[[ModelAnswer], None],
        check: Callable[[], None],
    ) -> Reflector:
        """Asks the agent's reflector, which is its own model where it has no other, what its attempts teach. ``recall``
        and ``keep`` hold what was answered, so that nothing is asked twice. In the loop in which it will work."""
        client = self.clients.reflector()
        most_tokens = max(self.agent.max_tokens, REFLECTION_TOKENS)
        asker = Asker(
            model=client,
            sampling=Sampling(client.endpoint.model, REFLECTION_TEMPERATURE, most_tokens),
            prefix=self._prefix("reflection"),
            purpose="reflection",
            recall=recall,
            keep=keep,
            check=check,
        )
        return Reflector(asker, options, secret=f"{settings.SECRET_KEY}/{self.job_id}")

    def _llm(self, policy: ContextSource, temperature: float, purpose: str) -> LLMRuntime:
        return LLMRuntime(
            model=self._model_of(policy),
            sampling=self._sampling(temperature),
            philosophy=self.agent.philosophy,
            system=self._system,
            context=policy.context_for,
            connect=self._tools.toolset,
            key_prefix=self._prefix(purpose),
            purpose=_paid_for(purpose),
            instructions=self._instructions,
        )

    def _foreign(self, policy: ContextSource, temperature: float, max_steps: int, purpose: str) -> HTTPRuntime:
        calls = self._model_of(policy)
        if self._gateway is None:
            self._gateway = RolloutGateway(settings.ROLLOUT_GATEWAY_HOST, settings.ROLLOUT_GATEWAY_ADVERTISED)
        return HTTPRuntime(
            url=self.agent.url,
            headers=self._headers(),
            gateway=self._gateway,
            model=calls,
            sampling=self._sampling(temperature),
            system=self._system,
            context=policy.context_for,
            max_steps=max_steps,
            key_prefix=self._prefix(purpose),
            purpose=_paid_for(purpose),
            inject=self.agent.inject_context,
        )

    def _sampling(self, temperature: float) -> Sampling:
        top_p = self._calls().endpoint.extra.get("top_p")
        return Sampling(self.model, temperature, self.agent.max_tokens, top_p)

    def _headers(self) -> dict[str, str]:
        try:
            return agent_headers(self.agent)
        except Unsealable as error:
            raise Halted("llm_refused", str(error)) from error

    def _prefix(self, purpose: str) -> str:
        return f"{self.job_id}/{self.work}/{purpose}"

    def spent_micros(self) -> int:
        """Spending of the job until now, including every answered call. Called from outside of its
        loop."""
        asyncio.run(self.clients.flush())
        return job_spent_micros(self.job_id)

    async def aclose(self) -> None:
        """Waits until every settlement is written. In the loop in which it worked."""
        if self._judged_by is not None:
            await self._judged_by.aclose()
        await self._tools.aclose()
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.aclose()
        await self.clients.aclose()
        if self._model_server is not None:
            await self._model_server.aclose()

    @property
    def model_server(self) -> ModelServerClient:
        """The agent's endpoint as a model server. In the loop in which it will work."""
        if self._model_server is None:
            self._model_server = ModelServerClient(self._calls().endpoint)
        return self._model_server

    def _model_of(self, policy: ContextSource) -> ChatModel:
        """The client of the agent's model with the weights that the policy brings, if it has any of its own."""
        base, weights = self._calls(), weights_of(policy)
        if weights is None:
            return base
        return OwnModel(self.clients.own(f"{self.model}@{weights.digest}"), self.model_server, weights)

    def _calls(self, model: str = "") -> MeteredChatClient:
        """The client of the agent's own model, or of another one, made in the running loop at its first use."""
        if model and model != self.model:
            return self.clients.own(model)
        client = self.clients.own()
        self.model = client.endpoint.model
        return client


def _paid_for(purpose: str) -> str:
    """The ledger's purpose of a call: validation counts as evaluation."""
    return "training" if purpose == "training" else "evaluation"
