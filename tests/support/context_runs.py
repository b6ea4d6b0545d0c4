"""Runs of a context policy against the simulated model: the real trainer, runtime and client, and no database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import uvloop

from budgets.llm.client import MeteredChatClient
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint
from budgets.meter_port import FreeMeter
from budgets.pricing import Price
from experiences.learning.lessons.attempts import shared_texts
from experiences.learning.lessons.library import Library
from experiences.learning.lessons.prompts import ReflectionOptions
from experiences.learning.lessons.reflection import Reflected, Reflector, Rewritten
from experiences.rollouts.runtimes.base import ContextSource, Runtime
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.structured_output import Asker, ModelAnswer
from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.inference import PairedDifference, paired_difference
from training.config.presets import merged, preset_values
from training.data.pools import Pools, dataset_pools
from training.learners.context import ContextLearner
from training.schema import GRPOConfig
from training.trainer import IterationReport, TrainerSetup, TrainerState, play, steps

MODEL = "small"


class OnePrice:
    def price(self, model: str) -> Price:
        return Price(model, 150_000, 600_000)


@dataclass
class Player:
    """Plays as ``experiences.agents.runtime_factory.RuntimeFactory`` does, on a meter that never refuses."""

    base_url: str
    meter: FreeMeter = field(default_factory=FreeMeter)
    concurrency: int = 64
    _client: MeteredChatClient | None = None

    def client(self) -> MeteredChatClient:
        if self._client is None:
            endpoint = Endpoint(
                self.base_url, MODEL, Secret("sk-test"), default_concurrency=self.concurrency, max_retries=2
            )
            self._client = MeteredChatClient(endpoint, self.meter, OnePrice())
        return self._client

    def __call__(self, policy: ContextSource, *, temperature: float, max_steps: int, purpose: str) -> Runtime:
        return LLMRuntime(
            self.client(),
            Sampling(MODEL, temperature, 200),
            philosophy="cot",
            context=policy.context_for,
            key_prefix=f"run/{purpose}",
        )

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


@dataclass
class Reflecting:
    """Reflection that keeps what it asked."""

    player: Player
    options: ReflectionOptions
    answered: list[ModelAnswer] = field(default_factory=list)
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
        return await self._asking().kinds(queries)

    def _asking(self) -> Reflector:
        if self._reflector is None:
            asker = Asker(self.player.client(), Sampling(MODEL, 0.3, 1024), "run/reflection", keep=self.answered.append)
            self._reflector = Reflector(asker, self.options, "a secret")
        return self._reflector


@dataclass
class Finished:
    """The result of a run."""

    setup: TrainerSetup
    state: TrainerState
    reports: list[IterationReport]
    answered: list[ModelAnswer]
    spent: int
    player: Player
    pools: Pools

    @property
    def shipped(self) -> list[str]:
        """The texts of the lessons that the run ships."""
        policy: Any = self.state.policy
        return [lesson.text for lesson in policy.shipped_lessons]


def setup_of(
    base_url: str,
    rows: list[dict[str, Any]],
    config: Mapping[str, Any],
    *,
    seed: int,
    split_seed: int | None = None,
    **began: Any,
) -> tuple[TrainerSetup, Reflecting, Player, Pools]:
    """``began`` is what the run begins with, by the names of ``TrainerSetup``."""
    values = merged(preset_values("recommended", ContextLearner()), {"max_concurrent_rollouts": 64, **config})
    parsed = GRPOConfig.model_validate(values)
    pools = dataset_pools(rows, {}, seed if split_seed is None else split_seed)
    player = Player(base_url)
    context = parsed.context
    options = ReflectionOptions(
        context.reflect_groups,
        context.reflect_each,
        context.max_lessons,
        context.max_words,
        concurrency=64,
        group_tokens=context.group_tokens,
        show_answers=context.show_answers,
        exemplars=context.exemplars,
        shared=shared_texts(pools.train),
    )
    reflecting = Reflecting(player, options)
    setup = TrainerSetup(
        config=parsed,
        seed=seed,
        environment=pools.environment,
        train=pools.train,
        selection=pools.selection,
        policy_version_prefix=f"r{seed}.",
        learner=ContextLearner(),
        acting=player,
        model=MODEL,
        closing=player.aclose,
        new_loop=uvloop.new_event_loop,
        reflecting=reflecting,
        **began,
    )
    return setup, reflecting, player, pools


def learned(
    base_url: str, rows: list[dict[str, Any]], config: Mapping[str, Any], *, seed: int, **began: Any
) -> Finished:
    """A whole run."""
    setup, reflecting, player, pools = setup_of(base_url, rows, config, seed=seed, **began)
    state = setup.fresh_state()
    reports = list(steps(setup, state))
    return Finished(setup, state, reports, reflecting.answered, player.meter.spent_micros, player, pools)


def success_of(finished: Finished, policy: Any, *, samples: int, purpose: str) -> np.ndarray[Any, Any]:
    """(n, k) on the held-out queries."""
    setup = finished.setup

    async def played() -> Any:
        try:
            plan = replace(setup, model=MODEL).plan(
                policy,
                setup.reward(),
                temperature=setup.config.eval_temperature,
                purpose=purpose,
                stream=2,
            )
            return await play(finished.pools.held_out, samples, plan)
        finally:
            await finished.player.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        success: np.ndarray[Any, Any] = runner.run(played()).success
    return success


def gain_of(finished: Finished, *, samples: int = 8) -> PairedDifference:
    """The shipped context against the one that the run began with, on the held-out queries, paired."""
    before = success_of(finished, finished.setup.fresh_state().policy, samples=samples, purpose="baseline")
    after = success_of(finished, finished.state.policy, samples=samples, purpose="trained")
    return paired_difference(after, before)
