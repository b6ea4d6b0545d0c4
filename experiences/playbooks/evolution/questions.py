"""Questions of one evolution: to its reflector in rounds, if it has any, then to the model that suggests changes.

Each question is held in the budget before it is sent, and its answer kept before the next is asked. So a worker
that dies, a budget that is empty or a person who pauses costs at most the one that was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Final

import uvloop
from django.conf import settings
from django.db import connection

from agentcore_site.jobs.lease import Lease, MustPause
from agentcore_site.lib.errors import DomainError
from budgets.llm.client import MeteredChatClient
from experiences.agents.consent import recording
from experiences.agents.endpoint_config import has_reflector
from experiences.agents.evolution_settings import MOST_ROUNDS, evolution_settings
from experiences.agents.model_clients import JobClients
from experiences.learning.playbooks.deltas import Delta
from experiences.learning.playbooks.evidence import EvolutionEvidence
from experiences.learning.playbooks.generator import proposed
from experiences.learning.playbooks.reflector import Insight, reflected
from experiences.lessons.answer_log import AnswerLog
from experiences.models import Evolution, Question
from experiences.playbooks.evolution.costs import MAX_TOKENS
from experiences.playbooks.selectors import PURPOSE
from experiences.rollouts.prompt_quoting import steady_marks
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.structured_output import Asker, ModelAnswer

TEMPERATURE: Final = 0.3
REMEMBERED: Final = 10 * (MOST_ROUNDS + 1)  # answers of an agent's latest evolutions that are used again
UNUSABLE: Final = "The model gave no answer that can be used: {why}."


class NoSuggestions(DomainError):
    """The answer was refused, also after its repair. The evolution fails, and can be tried again."""


class EvolutionQuestions:
    """The questions of one evolution in one worker's turn."""

    def __init__(self, evolution: Evolution, lease: Lease) -> None:
        self.evolution, self.job, self.lease = evolution, evolution.job, lease
        self._own = evolution_settings(evolution.agent)
        self._kept = {row.key: _answered(row) for row in Question.objects.filter(job=self.job)}
        self._earlier = self._asked_before()
        self._answers = len(self._kept)

    def deltas(self, evidence: EvolutionEvidence) -> list[Delta]:
        """The changes that the models suggest.

        Raises:
            MustPause: a call can't be paid for, or the model's service is away.
            NoSuggestions: no usable answer came.
            StopRequested, LeaseLost: it has to stop; what was answered is kept.
        """
        clients = JobClients(self.evolution.agent, job_id=self.job.id)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, ThreadPoolExecutor(1) as writer:
            # On an event loop Django refuses to wait: a thread writes with a connection of its own.
            run = copy_context().run  # the thread sees what this job sees
            book = AnswerLog(
                self.job, self.evolution.agent_id, lambda store: writer.submit(run, self._fenced, store).result()
            )
            try:
                found = runner.run(self._asked(clients, book, evidence))
            except Halted as halt:
                raise MustPause(halt.reason, str(halt), halt.retry_after) from halt
            finally:
                runner.run(clients.aclose())
        if found is None:
            raise NoSuggestions(UNUSABLE.format(why=self._refusal()))
        return found

    async def _asked(self, clients: JobClients, book: AnswerLog, evidence: EvolutionEvidence) -> list[Delta] | None:
        insights = await self._insights(clients, book, evidence) if self._own.reflection_rounds else None
        if self._own.reflection_rounds and not insights:
            return None if insights is None else []  # nothing was found that could become a change
        client = clients.own(self._own.delta_model)
        key = f"deltas/{self.evolution.tries}"
        return await proposed(
            self._asker(client, book), evidence, insights, key=key, marks=self._marks(client, evidence)
        )

    async def _insights(
        self, clients: JobClients, book: AnswerLog, evidence: EvolutionEvidence
    ) -> list[Insight] | None:
        """By the agent's reflector where it has one, else by the model that suggests changes."""
        own = not has_reflector(self.evolution.agent)
        client = clients.own(self._own.delta_model) if own else clients.reflector()
        return await reflected(
            self._asker(client, book),
            evidence,
            rounds=self._own.reflection_rounds,
            key=lambda number: f"insights/{self.evolution.tries}/{number}",
            marks=self._marks(client, evidence),
        )

    def _marks(self, client: MeteredChatClient, evidence: EvolutionEvidence) -> Callable[[], str]:
        """Of these executions and this model: the same question has the same words in a later evolution too."""
        executions = (execution.id for execution in evidence.executions)
        return steady_marks(settings.SECRET_KEY, self.evolution.agent_id, client.endpoint.model, *executions)

    def _asker(self, client: MeteredChatClient, book: AnswerLog) -> Asker:
        def recall(key: str, asked: str) -> ModelAnswer | None:
            """The answer to this question of the job, or to the same words in an earlier evolution of the agent. The
            question's words may differ by a count that has risen since. A paid answer is used all the same, and the
            curator reads the present playbook."""
            if key not in self._kept and asked in self._earlier:
                book.keep(replace(self._earlier[asked], key=key))
            return self._kept.get(key) or self._earlier.get(asked)

        return Asker(
            client,
            Sampling(client.endpoint.model, TEMPERATURE, MAX_TOKENS),
            prefix=f"{self.job.id}/{self.job.attempt}",
            purpose=PURPOSE,
            recall=recall,
            keep=book.keep,
            check=self.lease.check,
        )

    def _asked_before(self) -> dict[str, ModelAnswer]:
        """Usable answers of this agent's latest evolutions by what was asked, to the word: none is paid twice."""
        rows = Question.objects.filter(agent_id=self.evolution.agent_id, job__kind="evolution", usable=True)
        return {row.asked: _answered(row) for row in rows.order_by("-id")[:REMEMBERED]}

    def _fenced(self, store: Callable[[], None]) -> None:
        self._answers += 1
        done = 0.1 + 0.7 * min(1.0, self._answers / (self._own.reflection_rounds + 1))
        try:
            with recording(self.lease, self.evolution.agent_id, progress=done, crashes=0):
                store()
        finally:
            connection.close()

    def _refusal(self) -> str:
        refused = Question.objects.filter(job=self.job, usable=False).order_by("-id")
        return refused.values_list("reason", flat=True).first() or "no reason was given"


def _answered(row: Question) -> ModelAnswer:
    """The answer without its cost, which was counted where it was asked."""
    return ModelAnswer(
        row.key, row.stage, row.iteration, row.asked, row.usable, row.reply, row.reason, calls=0, model=row.model
    )
