"""The training loop: a generator that yields one report per applied iteration."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiences.learning.lessons.operations import Receipt, apply_operations
from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.collect import Keep, collect_groups
from experiences.rollouts.rewards import LearningReward
from experiences.rollouts.rewards.bounded import settle_in_time
from experiences.rollouts.runtimes.action import observation_of
from experiences.rollouts.types import RolloutKey, Trajectory, TrajectoryGroup
from training.algorithm.advantages import ZERO_SPREAD
from training.algorithm.convergence import Vitals
from training.policies.action import ActionPolicy
from training.policies.context import ContextPolicy
from training.policies.exploration import FailureMemory, PoolEvidence
from training.policies.query_rule import Choice
from training.trainer import gate
from training.trainer.context import MIXED_AFTER, rules_of, too_even, update_context, worth_reflecting
from training.trainer.play import Played
from training.trainer.sampling import draw_prioritised, draw_scenarios
from training.trainer.selection import played_on_selection, selection_report, standard_error
from training.trainer.setup import Check, GateReport, IterationReport, Kept, SelectionReport, TrainerSetup
from training.trainer.state import TrainerState, untrained
from training.trainer.update import UpdateResult, update_policy

EARLY_STOPPED, ALL_ITERATIONS = "early_stopped", "all_iterations"
MAX_REFUSED = 3  # updates in a row that were not finite before the run is given up


class TrainingDiverged(RuntimeError):
    """Several updates in a row were not finite numbers: go back to an earlier checkpoint or change the settings."""


def steps(
    setup: TrainerSetup, state: TrainerState, *, kept: Kept, keep: Keep, check: Check
) -> Generator[IterationReport]:
    """Trains from ``state.iteration`` + 1 on, changing ``state`` in place, until the last iteration or early stop.

    ``kept(iteration)`` are rollouts that were stored before a crash: they are used and not run again, and give
    the same update bit for bit. ``keep`` gets each new rollout as it ends; ``check`` may raise to interrupt, which
    leaves ``state`` as it was after the last yielded iteration (apart from its baseline evaluation).

    Raises:
        TrainingDiverged: several updates in a row were not finite.
        Interrupted: (or what else ``check`` or ``keep`` raises).
    """
    training = _Loop(setup, state, keep, check)
    # The runner's own ``run`` swaps the process's signal handler each time, which costs milliseconds an iteration.
    with asyncio.Runner(loop_factory=setup.new_loop) as runner:
        try:
            while not state.stop_reason:
                yield training.iterate(runner.get_loop(), kept(state.iteration + 1))
        finally:
            runner.get_loop().run_until_complete(setup.closing())


@dataclass
class _Loop:
    setup: TrainerSetup
    state: TrainerState
    keep: Keep
    check: Check

    def __post_init__(self) -> None:
        self._reward = self.setup.reward()
        if isinstance(self._reward, LearningReward):
            self._reward.load_state_dict(self.state.reward)
        self._pool: PoolEvidence | None = None

    def iterate(self, loop: asyncio.AbstractEventLoop, kept: Mapping[RolloutKey, Trajectory]) -> IterationReport:
        setup, state = self.setup, self.state
        baseline = self._baseline(loop)
        self._search_start(loop)
        iteration, drawn = state.iteration + 1, state.drawn
        started = time.perf_counter()
        groups, drawn = loop.run_until_complete(self._rollouts(iteration, drawn, kept))
        collected = time.perf_counter()
        # What is asked comes before what is changed: an interruption leaves the policy as it was.
        reflected = self._reflect(loop, groups, iteration)
        result, receipts = self._update(groups, reflected, iteration)
        if state.memory is not None:
            remember(state.memory, groups)
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
            receipts=receipts,
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

    def _reflect(
        self, loop: asyncio.AbstractEventLoop, groups: list[TrajectoryGroup], iteration: int
    ) -> Reflected | None:
        """What the groups teach a context policy, where this iteration asks for it."""
        setup, policy = self.setup, self.state.policy
        if not isinstance(policy, ContextPolicy) or setup.reflecting is None:
            return None
        if not worth_reflecting(policy, setup.config, iteration):
            return None
        return loop.run_until_complete(
            setup.reflecting.reflect(groups, policy.library, iteration=iteration, epoch=setup.epoch(iteration))
        )

    def _update(
        self, groups: list[TrajectoryGroup], reflected: Reflected | None, iteration: int
    ) -> tuple[UpdateResult, list[Receipt]]:
        setup, state, config = self.setup, self.state, self.setup.config
        if isinstance(state.policy, ActionPolicy):
            memory = state.memory if config.exploration.failure_memory > 0 else None
            return update_policy(groups, state.policy, state.optimizer, state.value, config, memory), []
        policy = state.policy
        result = update_context(groups, policy, state.optimizer, config, setup.seed)
        if reflected is None:
            return result, []
        place = f"{setup.policy_version_prefix}/{iteration}"
        rules = rules_of(policy, config, functions=setup.functions, memory=setup.memory)
        applied = apply_operations(policy.library, reflected.proposed, rules, place=place)
        policy.take(applied.library)
        return result, applied.receipts

    async def _rollouts(
        self, iteration: int, drawn: int, kept: Mapping[RolloutKey, Trajectory]
    ) -> tuple[list[TrajectoryGroup], int]:
        """The iteration's groups and the draws made by then. With dynamic sampling, groups without spread are
        replaced by those of other queries, for a few rounds (DAPO, arXiv 2503.14476)."""
        config = self.setup.config
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
        setup, config, policy, memory = self.setup, self.setup.config, self.state.policy, self.state.memory
        chooser: Any = policy
        if isinstance(policy, ContextPolicy):
            chooser = policy.exploring(setup.seed, config.n_trajectories_per_query)
        elif memory is not None and config.exploration.failure_memory > 0:
            chooser = policy.exploring(memory)
        groups = await collect_groups(
            [setup.train[position] for position in positions],
            iteration=iteration,
            group_size=config.n_trajectories_per_query,
            environment=setup.environment,
            runtime=setup.acting(
                chooser, temperature=config.temperature, max_steps=config.max_steps, purpose="training"
            ),
            reward=self._reward,
            seed=setup.seed,
            limits=setup.limits(),
            kept=kept,
            keep=self.keep,
            check=self.check,
            policy_version=self.state.policy.version,
            model=setup.model,
        )
        for group in groups:
            await settle_in_time(self._reward, group.trajectories)
        return groups

    def _baseline(self, loop: asyncio.AbstractEventLoop) -> SelectionReport | None:
        """Measures the policy the run began with, once: before anything is learned."""
        state = self.state
        if state.baseline_success is not None or not self.setup.selection:
            return None
        played = self._look(loop, state.policy, state.iteration)
        state.baseline_success = played.success
        state.baseline_steps, state.baseline_reward = played.steps, played.reward
        return selection_report(state.iteration, played, played.success)

    def _search_start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measures on the search's queries, once, what the run began with. Where an earlier release kept something by
        other queries, that is measured too."""
        state, policy = self.state, self.state.policy
        if not isinstance(policy, ContextPolicy) or not gate.searches(self.setup.config) or not self.setup.selection:
            return
        if state.search_start is not None:
            return
        state.search_start = state.current_success = self._look(loop, self._start(), 0, searching=True).success
        if policy.kept != policy.start:
            kept = policy.showing(policy.keeps)
            state.current_success = self._look(loop, kept, state.iteration, searching=True).success

    def _select(self, loop: asyncio.AbstractEventLoop) -> tuple[SelectionReport | None, GateReport | None]:
        """Evaluates every ``eval_interval`` iterations and at the end, decides whether to stop, and what is shipped."""
        setup, state = self.setup, self.state
        config, last = setup.config, state.iteration >= setup.config.n_iterations
        if last:
            state.stop_reason = ALL_ITERATIONS
        evaluates = last or state.iteration % config.eval_interval == 0
        if state.baseline_success is None or not (evaluates or gate.ends_step(setup, state.iteration)):
            return None, None
        policy = state.policy
        if isinstance(policy, ContextPolicy):
            return self._select_context(loop, policy, evaluates)
        played = self._look(loop, policy, state.iteration)
        self._stop_on_plateau(played)
        return selection_report(state.iteration, played, state.baseline_success), None

    def _select_context(
        self, loop: asyncio.AbstractEventLoop, policy: ContextPolicy, evaluates: bool
    ) -> tuple[SelectionReport | None, GateReport | None]:
        """A step of the search where there is one; a look at what the policy would ship, and at the end the gate."""
        setup, state, config = self.setup, self.state, self.setup.config
        assert state.baseline_success is not None
        candidate = policy.candidate(
            config.context.ship_confidence,
            setup.slots,
            queries=[scenario.query for scenario in setup.train],
            most_tokens=config.context.max_tokens,
        )
        step = None
        if gate.searches(config):
            step = self._search(loop, policy, candidate)
            candidate = policy.keeps
        if not evaluates:
            return None, step
        new = self._is_new(policy, candidate)
        played = self._look(loop, policy.showing(candidate), state.iteration) if new else self._looked_at_start(loop)
        self._stop_on_plateau(played)
        if not state.stop_reason:
            return selection_report(state.iteration, played, state.baseline_success), step
        selection, decided = self._ask_gate(loop, policy, candidate, played, new)
        if step is None:
            return selection, decided
        rolled_back = [*step.rolled_back, *decided.rolled_back]
        return selection, replace(decided, kept=step.kept, rolled_back=rolled_back)

    def _search(self, loop: asyncio.AbstractEventLoop, policy: ContextPolicy, candidate: Choice) -> GateReport:
        """Ends a step: what it learned is kept or given up."""
        played = self._look(loop, policy.showing(candidate), self.state.iteration, searching=True)
        return gate.keep(self.setup, self.state, policy, candidate, played)

    def _ask_gate(
        self, loop: asyncio.AbstractEventLoop, policy: ContextPolicy, candidate: Choice, played: Played, new: bool
    ) -> tuple[SelectionReport, GateReport]:
        """Compares the candidate, of which ``played`` are the first samples, with what the run began with; where it is
        nothing ``new``, there is nothing to compare."""
        setup, state = self.setup, self.state
        compared = gate.unchanged(played)
        if new:
            compared = gate.compare(
                setup.config,
                state,
                played,
                more=partial(self._look, loop, policy.showing(candidate), state.iteration),
                more_of_start=partial(self._look, loop, self._start(), 0),
            )
        selection = selection_report(state.iteration, compared.played, compared.before)
        return selection, gate.decide(setup, state, policy, candidate, compared)

    def _is_new(self, policy: ContextPolicy, candidate: Choice) -> bool:
        """Whether the candidate tells any query anything else than what the run began with."""
        start = self._start()
        queries = [scenario.query for scenario in (*self.setup.selection, *self.setup.train)]
        return not policy.tells_alike(candidate, start, queries)

    def _looked_at_start(self, loop: asyncio.AbstractEventLoop) -> Played:
        """The look at what the run began with: it was paid for once, and is used again. A checkpoint from before its
        steps and rewards were kept plays it again, once: its calls have names, which can't be used twice."""
        state = self.state
        assert state.baseline_success is not None
        if state.baseline_steps is None or state.baseline_reward is None:
            played = self._look(loop, self._start(), 0)
            state.baseline_steps, state.baseline_reward = played.steps, played.reward
        samples = state.baseline_steps.shape[1]
        return Played(state.baseline_success[:, :samples], state.baseline_steps, state.baseline_reward, [])

    def _start(self) -> ContextPolicy:
        """What the run began with."""
        policy = untrained(self.setup)
        assert isinstance(policy, ContextPolicy)
        policy.updated(self.setup.version(0))
        return policy

    def _stop_on_plateau(self, played: Played) -> None:
        state = self.state
        plateau = state.stopper.update(played.success_rate, standard_error(played.success))
        if plateau and self.setup.config.early_stopping.enabled:
            state.stop_reason = state.stop_reason or EARLY_STOPPED

    def _look(
        self,
        loop: asyncio.AbstractEventLoop,
        chooser: Any,
        at: int,
        first: int = 0,
        samples: int | None = None,
        *,
        searching: bool = False,
    ) -> Played:
        """A policy on the selection queries (``searching``: on those of the search): ``samples`` (None: those of one
        look) of each, from ``first`` on."""
        return played_on_selection(
            loop,
            self.setup,
            chooser,
            self._reward,
            self.check,
            at=at,
            first=first,
            samples=samples,
            searching=searching,
        )

    def _judge(self, result: UpdateResult) -> list[str]:
        """Warnings of collapse or divergence; gives up after several updates that were not finite."""
        state, metrics = self.state, result.metrics
        state.refused = state.refused + 1 if result.not_finite else 0
        if state.refused >= MAX_REFUSED:
            raise TrainingDiverged(f"{state.refused} updates in a row were not finite. Lower the learning rate.")
        if isinstance(state.policy, ContextPolicy):
            return self._even(state.policy)
        return state.guard.update(
            Vitals(
                success_rate=metrics["success_rate"],
                reward_mean=metrics["reward_mean"],
                steps_mean=metrics["steps_mean"],
                entropy=metrics["entropy"],
                approx_kl=metrics["approx_kl"],
                loss=math.nan if result.not_finite else metrics["loss"],
                grad_norm=metrics["grad_norm"],
            )
        )

    def _even(self, policy: ContextPolicy) -> list[str]:
        """Said once, when it is known: with a model like this nothing can be compared."""
        if policy.compared - self.setup.config.batch_size >= MIXED_AFTER or not too_even(policy, self.setup.config):
            return []
        share = policy.mixed / max(policy.compared, 1)
        return [
            f"Only {share:.0%} of the groups had both good and bad attempts: there is little to learn from. Take "
            "queries of which the model solves some and fails some, or another model."
        ]


def remember(memory: FailureMemory, groups: Sequence[TrajectoryGroup]) -> None:
    """Tells the memory what an iteration brought."""
    for group in groups:
        solved = sum(trajectory.success for trajectory in group.trajectories)
        memory.count_group(group.scenario.query, solved / len(group.trajectories))
        for trajectory in group.trajectories:
            taken = [
                (observation_of(trajectory.query, s.state), s.choice) for s in trajectory.steps if s.choice is not None
            ]
            if trajectory.success:
                memory.count_success(taken)
            elif not solved:
                memory.count_failure(taken)


def _has_spread(group: TrajectoryGroup) -> bool:
    known = [trajectory.reward for trajectory in group.trajectories if math.isfinite(trajectory.reward)]
    return len(known) > 1 and max(known) - min(known) > ZERO_SPREAD


def _spread_first(groups: list[TrajectoryGroup], size: int) -> list[TrajectoryGroup]:
    """``size`` groups, those with spread before those without, each kind in its order."""
    return sorted(groups, key=lambda group: not _has_spread(group))[:size]
