"""The training loop: a generator that yields one report per applied iteration."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiences.rollouts.collect import collect_groups
from experiences.rollouts.rewards import LearningReward
from experiences.rollouts.rewards.bounded import settle_in_time
from experiences.rollouts.types import RolloutKey, Trajectory, TrajectoryGroup
from training.algorithm.advantages import ZERO_SPREAD
from training.policies.exploration import PoolEvidence
from training.trainer.play import SELECTION_STREAM, Played, play
from training.trainer.reports import GateReport, IterationReport, SelectionReport
from training.trainer.results import UpdateResult
from training.trainer.sampling import draw_prioritised, draw_scenarios
from training.trainer.selection import ALL_ITERATIONS, SEARCH, selection_report
from training.trainer.setup import TrainerSetup
from training.trainer.state import TrainerState

MAX_REFUSED = 3  # updates in a row that were not finite before the run is given up


class TrainingDiverged(RuntimeError):
    """Several updates in a row were not finite numbers: go back to an earlier checkpoint or change the settings."""


def steps(setup: TrainerSetup, state: TrainerState) -> Generator[IterationReport]:
    """Trains from ``state.iteration`` + 1 on, changing ``state`` in place, until the last iteration or early stop.

    Raises:
        TrainingDiverged: several updates in a row were not finite.
        What ``setup.rollouts`` raises, as it is.
    """
    training = _Loop(setup, state)
    # The runner's own ``run`` swaps the process's signal handler each time, which costs milliseconds an iteration.
    with asyncio.Runner(loop_factory=setup.new_loop) as runner:
        try:
            while not state.stop_reason:
                yield training.iterate(runner.get_loop(), setup.rollouts.stored(state.iteration + 1))
        finally:
            runner.get_loop().run_until_complete(setup.closing())


@dataclass
class _Loop:
    setup: TrainerSetup
    state: TrainerState

    def __post_init__(self) -> None:
        self._reward = self.setup.reward()
        if isinstance(self._reward, LearningReward):
            self._reward.load_state_dict(self.state.reward)
        self._pool: PoolEvidence | None = None

    def iterate(self, loop: asyncio.AbstractEventLoop, kept: Mapping[RolloutKey, Trajectory]) -> IterationReport:
        setup, state = self.setup, self.state
        baseline = self._baseline(loop)
        setup.learner.begin(setup, state, partial(self._validate, loop))
        iteration, drawn = state.iteration + 1, state.drawn
        started = time.perf_counter()
        groups, drawn = loop.run_until_complete(self._rollouts(iteration, drawn, kept))
        collected = time.perf_counter()
        # Reflection precedes any change: an interruption leaves the policy unchanged.
        reflected = loop.run_until_complete(setup.learner.reflect(setup, state, groups, iteration))
        result = loop.run_until_complete(setup.learner.learn(setup, state, groups, reflected, iteration))
        if isinstance(self._reward, LearningReward):
            self._reward.learn([trajectory for group in groups for trajectory in group.trajectories])
            state.reward = self._reward.state_dict()
        state.iteration, state.drawn = iteration, drawn
        state.policy.updated(setup.version(iteration))
        state.trajectories += int(result.metrics["trajectories"])
        updated = time.perf_counter()
        warnings = self._judge(result)
        selection, decided = self._select(loop)
        return IterationReport(
            iteration=iteration,
            epoch=setup.epoch(iteration),
            reflected=reflected,
            gate=decided,
            groups=groups,
            metrics=result.metrics,
            warnings=warnings,
            selection=selection,
            baseline=baseline,
            stop_reason=state.stop_reason,
            rollout_seconds=collected - started,
            update_seconds=updated - collected,
        )

    async def _rollouts(
        self, iteration: int, drawn: int, kept: Mapping[RolloutKey, Trajectory]
    ) -> tuple[list[TrajectoryGroup], int]:
        """The iteration's groups and the draws made by then. With dynamic sampling, groups without spread are
        replaced by those of other queries, for a few rounds (DAPO, arXiv 2503.14476)."""
        config = self.setup.config
        if (chosen := self.setup.learner.queries(self.setup, self.state)) is not None:
            return await self._collect(iteration, chosen, kept), drawn
        groups: list[TrajectoryGroup] = []
        taken: set[int] = set()
        rounds = config.max_num_gen_batches if config.dynamic_sampling else 1
        for _ in range(rounds):
            missing = config.batch_size - sum(_has_spread(group) for group in groups) if groups else config.batch_size
            positions, drawn = self._draw(iteration, missing, drawn, taken)
            if not positions:
                break
            taken.update(positions)
            groups += await self._collect(iteration, positions, kept)
        return (_spread_first(groups, config.batch_size) if config.dynamic_sampling else groups), drawn

    def _draw(self, iteration: int, wanted: int, drawn: int, taken: Collection[int]) -> tuple[list[int], int]:
        """Positions in the pool, and draws made by then. Priorities count once half of the pool was seen."""
        memory, seed, pool = self.state.memory, self.setup.seed, len(self.setup.train)
        prioritised = self.setup.config.exploration.query_sampling == "prioritised"
        if memory is None or not prioritised or drawn < pool / 2:
            return draw_scenarios(pool, wanted, drawn, seed, taken)
        if self._pool is None:
            queries = [scenario.query for scenario in self.setup.train]
            self._pool = PoolEvidence.of(memory.encoder, queries)
        chosen = draw_prioritised(memory.success(self._pool), wanted, iteration, seed, taken)
        return chosen, drawn + len(chosen)

    async def _collect(
        self, iteration: int, positions: Sequence[int], kept: Mapping[RolloutKey, Trajectory]
    ) -> list[TrajectoryGroup]:
        setup, config = self.setup, self.setup.config
        chooser = setup.learner.act(setup, self.state)
        groups = await collect_groups(
            [setup.train[position] for position in positions],
            setup.plan(chooser, self._reward, temperature=config.temperature, purpose="training"),
            iteration=iteration,
            group_size=config.n_trajectories_per_query,
            kept=kept,
            keep=setup.rollouts.store,
        )
        for group in groups:
            await settle_in_time(self._reward, group.trajectories)
        return groups

    def _baseline(self, loop: asyncio.AbstractEventLoop) -> SelectionReport | None:
        """Measures the policy the run began with, once: before anything is learned."""
        state = self.state
        if state.baseline_success is not None or not self.setup.selection:
            return None
        played = self._validate(loop, state.policy, state.iteration)
        state.baseline_success = played.success
        state.baseline_steps, state.baseline_reward = played.steps, played.reward
        return selection_report(state.iteration, played, played.success)

    def _select(self, loop: asyncio.AbstractEventLoop) -> tuple[SelectionReport | None, GateReport | None]:
        """Evaluates every ``eval_interval`` iterations and at the end, decides whether to stop, and what is shipped."""
        setup, state = self.setup, self.state
        config, last = setup.config, state.iteration >= setup.config.n_iterations
        if last:
            state.stop_reason = ALL_ITERATIONS
        evaluates = bool(state.stop_reason) or state.iteration % config.eval_interval == 0
        if state.baseline_success is None or not (evaluates or setup.learner.validates_after(setup, state.iteration)):
            return None, None
        return setup.learner.validate(setup, state, partial(self._validate, loop), evaluates=evaluates)

    def _validate(
        self,
        loop: asyncio.AbstractEventLoop,
        chooser: Any,
        at: int,
        first: int = 0,
        samples: int | None = None,
        *,
        searching: bool = False,
    ) -> Played:
        """Plays ``samples`` rollouts (None: those of one validation) of each selection query, numbered from ``first``,
        with the same random numbers for every policy. ``searching`` uses the queries of the search instead. ``at`` is
        the iteration before the validation: no two validations may share the names of their paid calls."""
        setup, temperature, purpose = self.setup, self.setup.config.eval_temperature, f"selection.{at}"
        plan = setup.plan(chooser, self._reward, temperature=temperature, purpose=purpose, stream=SELECTION_STREAM)
        playing = play(
            setup.search_queries if searching else setup.selection,
            setup.validation_samples if samples is None else samples,
            plan,
            iteration=SEARCH if searching else 0,
            first=first,
            kept=setup.rollouts.stored_validation(at),
            keep=partial(setup.rollouts.store_validation, at),
        )
        return loop.run_until_complete(playing)

    def _judge(self, result: UpdateResult) -> list[str]:
        """Warnings of collapse or divergence; gives up after several updates that were not finite."""
        state = self.state
        state.refused = state.refused + 1 if result.not_finite else 0
        if state.refused >= MAX_REFUSED:
            raise TrainingDiverged(f"{state.refused} updates in a row were not finite. Lower the learning rate.")
        return self.setup.learner.warnings(self.setup, state, result)


def _has_spread(group: TrajectoryGroup) -> bool:
    known = [trajectory.reward for trajectory in group.trajectories if math.isfinite(trajectory.reward)]
    return len(known) > 1 and max(known) - min(known) > ZERO_SPREAD


def _spread_first(groups: list[TrajectoryGroup], size: int) -> list[TrajectoryGroup]:
    """``size`` groups, those with spread before those without, each kind in its order."""
    return sorted(groups, key=lambda group: not _has_spread(group))[:size]
