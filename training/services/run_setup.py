"""The setup of a run: its rows as the pure objects that the trainer works on, and the stores that its rollouts and
questions are written to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import uvloop

from agentcore_site.lib.feedback_metrics import trajectory_collected
from agentcore_site.lib.statistics import finite_or_none
from experiences.agents.runtime_factory import RuntimeFactory
from experiences.learning.lessons.kinds import question_key
from experiences.learning.lessons.library import Library
from experiences.learning.lessons.reflection import Reflected, Reflector, Rewritten
from experiences.lessons.answer_log import AnswerLog
from experiences.lessons.provenance import acting_functions
from experiences.models import Agent
from experiences.rollouts.environments.dataset import refuse_judged
from experiences.rollouts.structured_output import ModelAnswer
from experiences.rollouts.types import RolloutKey, Trajectory, TrajectoryGroup
from experiences.trajectories.rollout_writer import RolloutWriter
from experiences.trajectories.storage import TrajectoryScope, last_kept_iteration
from training import metrics
from training.learners.gate import searches
from training.models import TrainingRun
from training.services.pools import run_pools
from training.services.promotion import start_of_run
from training.services.run_lessons import known_of_run, library_of_run, reflection_options, rule_of_run
from training.services.weights_trainer import MeteredTrainer
from training.trainer import TrainerSetup
from training.trainer.selection import SEARCH
from training.trainer.setup import RolloutStore


def setup_of(run: TrainingRun, *, work: str = "") -> TrainerSetup:
    """The pure description of a run, without rows. ``work`` names the attempt, for the keys of paid calls.

    Raises:
        ValueError: an agent that chooses actions was given rows that a language model has to judge.
    """
    pools = run_pools(run)
    if not run.calls_model:
        refuse_judged(pools.environment)
        acting: dict[str, Any] = {}
    else:
        agent = run.acting_agent
        runtime_factory = RuntimeFactory(agent, job_id=run.job_id, work=work)
        library, weights = library_of_run(run)
        acting = {
            "acting": runtime_factory,
            "model": runtime_factory.model,
            "closing": runtime_factory.aclose,
            "weights_trainer": MeteredTrainer(runtime_factory, work) if run.learner.needs_model_server else None,
            "new_loop": uvloop.new_event_loop,  # a fifth less of the processor for each call
            "library": library,
            "weights": weights,
            "known": known_of_run(run),
            "rule": rule_of_run(run),
            "slots": None if agent.prompt_pack is None else agent.prompt_pack.experience_slots,
            "functions": acting_functions(agent),
        }
    return TrainerSetup(
        config=run.configuration,
        seed=run.seed,
        environment=pools.environment,
        train=pools.train,
        selection=pools.selection,
        learner=run.learner,
        policy_version_prefix=str(run.job_id)[-6:],
        start=None if run.starts_from_id is None else partial(start_of_run, run),
        **acting,
    )


def owner_of(run: TrainingRun, **where: str) -> TrajectoryScope:
    created = run.job.created_at.date().replace(day=1)
    return TrajectoryScope(run.job_id, run.organization_id, run.agent_id, created, **where)


@dataclass
class LazyReflector:
    """Reflection whose client is created on first use, in the event loop of the trainer."""

    setup: TrainerSetup
    agent: Agent
    book: AnswerLog
    check: Callable[[], None]
    on_answer: Callable[[ModelAnswer], None]
    _reflector: Reflector | None = None

    async def reflect(
        self, groups: Sequence[TrajectoryGroup], library: Library, *, iteration: int, epoch: int
    ) -> Reflected:
        return await self._asking().reflect(groups, library, iteration=iteration, epoch=epoch)

    async def rewrite(
        self, groups: Sequence[TrajectoryGroup], texts: Sequence[str], *, iteration: int
    ) -> Rewritten | None:
        return await self._asking().rewrite(groups, texts, iteration=iteration)

    async def kinds(self, queries: Sequence[str]) -> tuple[str, ...]:
        """An answer that the organisation has paid for is used again, in each of its jobs."""
        reflector = self._asking()
        self.book.copy(question_key(queries), reflector.asker.sampling.model)
        return await reflector.kinds(queries)

    def _asking(self) -> Reflector:
        if self._reflector is None:
            runtime_factory = self.setup.acting
            assert isinstance(runtime_factory, RuntimeFactory)
            options = reflection_options(self.setup.config, self.agent, self.setup.train)
            self._reflector = runtime_factory.reflector(
                options, recall=self.book.recall, keep=self._keep, check=self.check
            )
        return self._reflector

    def _keep(self, answered: ModelAnswer) -> None:
        self.book.keep(answered)
        self.on_answer(answered)


class StoredRollouts(RolloutStore):
    """A run's rollouts as rows, written under the slice's lease. Validations are stored where they are paid for."""

    def __init__(self, run: TrainingRun, owner: TrajectoryScope, writer: RolloutWriter) -> None:
        self._owner, self._writer = owner, writer
        self._kind, self._paid, self._searches = run.policy_kind, run.calls_model, searches(run.configuration)
        self._domain = (run.dataset.domain if run.dataset is not None else "") or "general"
        self._last_kept = last_kept_iteration(owner)

    def stored(self, iteration: int) -> Mapping[RolloutKey, Trajectory]:
        if iteration > self._last_kept:
            return {}
        found = self._writer.stored(self._owner, iteration=iteration)
        if self._paid:
            return found
        # An update needs what the policy saw, to the letter: where personal data left the record, the rollout is
        # played again (it is free, and the same), and not stored a second time.
        return {key: one for key, one in found.items() if "redacted" not in one.evidence}

    def store(self, trajectory: Trajectory) -> Awaitable[None] | None:
        """Fast rollouts are written with their iteration, slow ones as they end."""
        metrics.rollout_seconds.observe(trajectory.duration_ms / 1000)
        reward = finite_or_none(trajectory.reward)
        trajectory_collected(self._kind, self._domain, turns=len(trajectory.steps), reward=reward)
        return self._writer.store(self._owner, trajectory)

    def stored_validation(self, at: int) -> Mapping[RolloutKey, Trajectory]:
        if not self._paid:
            return {}
        scope = self._validation_scope(at)
        found = self._writer.stored(scope, iteration=0)
        return {**found, **self._writer.stored(scope, iteration=SEARCH)} if self._searches else found

    def store_validation(self, at: int, trajectory: Trajectory) -> Awaitable[None] | None:
        return self._writer.store(self._validation_scope(at), trajectory) if self._paid else None

    def check(self) -> None:
        self._writer.check()

    def _validation_scope(self, at: int) -> TrajectoryScope:
        return replace(self._owner, purpose="selection", line=f"{at}")
