"""Rollouts: bounded, repeatable, and never stopped by one another."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect, collect_groups, run_rollout
from experiences.rollouts.environments.base import StepOutcome
from experiences.rollouts.rewards import pay
from experiences.rollouts.runtimes.action import ActionRuntime, observation_of
from experiences.rollouts.runtimes.base import RolloutAttempt
from experiences.rollouts.types import Observation, RolloutKey, Scenario, Trajectory
from tests.support.waiting import Interrupted, UniformChooser, WaitingEnvironment, WaitingEpisode, plain_reward, queries


def nothing(*_: Any) -> None:
    """For ``keep`` and ``check``."""


Work = list[tuple[RolloutKey, Scenario]]


def work_of(scenarios: list[Scenario], group_size: int = 1, iteration: int = 0) -> Work:
    return [(RolloutKey(iteration, s.index, g), s) for s in scenarios for g in range(group_size)]


async def collected(environment: WaitingEnvironment, work: Any, **changed: Any) -> list[Trajectory]:
    settings: dict[str, Any] = {
        "environment": environment,
        "runtime": ActionRuntime(UniformChooser()),
        "reward": plain_reward,
        "seed": 7,
        "limits": RolloutLimits(),
    }
    kept, keep = changed.pop("kept", {}), changed.pop("keep", nothing)
    return await collect(work, RolloutPlan(**{**settings, **changed}), kept=kept, keep=keep)


def what_happened(trajectory: Trajectory) -> Any:
    """A trajectory without its clock."""
    steps = [(s.state, s.action, s.result, s.choice, s.logprob, s.reward) for s in trajectory.steps]
    return trajectory.key, trajectory.query, steps, trajectory.outcome, trajectory.reward, trajectory.error


async def times_for(n: int, concurrency: int) -> tuple[float, float]:
    """(wall time, processor time) of ``n`` rollouts that wait a second each; the best of three by processor time,
    which shows their time on a machine that does nothing else."""
    times = []
    for _ in range(3):
        environment = WaitingEnvironment(seconds=1.0)
        started, worked = time.perf_counter(), time.process_time()
        trajectories = await collected(environment, work_of(queries(n)), limits=RolloutLimits(concurrency=concurrency))
        times.append((time.process_time() - worked, time.perf_counter() - started))
        assert environment.most_running == n
        assert all(t.success and not t.error for t in trajectories)
        if times[-1][1] < 1.05:
            break
    work, wall = min(times)
    return wall, work


async def test_collect_runs_eight_rollouts_in_the_time_of_one() -> None:
    wall, work = await times_for(8, RolloutLimits().concurrency)
    assert wall < 1.9  # two rounds would take 2 s
    assert 1.0 + work < 1.05


async def test_collect_runs_a_thousand_at_once() -> None:
    wall, _ = await times_for(1000, 1000)  # all at once, as is counted there
    assert wall < 20  # a thousand rounds would take a thousand seconds; a busy machine takes several


async def by_hand(work: Work, environment: WaitingEnvironment, runtime: ActionRuntime) -> list[Trajectory]:
    """The least that the same rollouts need: a task with a time limit each, which plays, scores and pays."""

    async def one(key: RolloutKey, scenario: Scenario) -> Trajectory:
        trajectory = Trajectory(key, scenario.query, [])
        rng = np.random.default_rng((0, 7, key.iteration, key.scenario, key.rollout))
        episode = environment.start(scenario, rng)
        async with asyncio.timeout(300):
            await runtime.play(RolloutAttempt(key, scenario, episode, rng, trajectory.steps.append, nothing))
        trajectory.outcome = episode.outcome().score
        await episode.close()
        pay(plain_reward, trajectory)
        return trajectory

    return await asyncio.gather(*(one(key, scenario) for key, scenario in work))


async def test_a_thousand_at_once_take_little_more_of_the_processor_than_the_same_awaits_by_hand() -> None:
    """As a ratio in the same run: measured 1.1 to 1.4. A ``collect`` that takes twice as long has at least 2.1.

    The least of several rounds each: a shared processor counts the same work at up to twice its time. As long
    as the limit is not met, more are played, so that both sides meet a quiet moment; a slow ``collect`` has none.
    """
    work, runtime = work_of(queries(1000)), ActionRuntime(UniformChooser())
    ours, least = list[float](), list[float]()
    gc.collect()
    gc.disable()  # what a collection costs depends on everything that the tests have loaded
    try:
        while len(ours) < 5 or (len(ours) < 40 and min(ours) >= 1.8 * min(least)):
            began = time.process_time()
            await collected(WaitingEnvironment(seconds=0.3), work, limits=RolloutLimits(concurrency=1000))
            between = time.process_time()
            await by_hand(work, WaitingEnvironment(seconds=0.3), runtime)
            ours.append(between - began)
            least.append(time.process_time() - between)
    finally:
        gc.enable()
    assert min(ours) < 1.8 * min(least), (ours, least)


async def test_collect_never_runs_more_than_the_limit_at_once() -> None:
    environment = WaitingEnvironment(seconds=0.002, steps=2)
    await collected(environment, work_of(queries(20), 2), limits=RolloutLimits(concurrency=5))
    assert environment.most_running == 5
    assert environment.closed == 40


async def test_collect_has_no_barrier_between_groups() -> None:
    """One slow rollout delays no other: the places of others are taken at once by the next in line. This one ends only
    after all others: a barrier would wait for it first."""

    class Slow(WaitingEpisode):
        async def step(self, choice: int) -> StepOutcome:
            async with asyncio.timeout(20):
                while self.environment.closed < 39:
                    await asyncio.sleep(0.001)
            return await super().step(choice)

    class Uneven(WaitingEnvironment):
        def start(self, scenario: Scenario, rng: np.random.Generator) -> WaitingEpisode:
            episode = super().start(scenario, rng)
            return episode if scenario.index else Slow(self, scenario, episode.number)

    environment = Uneven(seconds=0.001)
    result = await collected(environment, work_of(queries(40)), limits=RolloutLimits(concurrency=2))
    assert (environment.closed, [one.error for one in result]) == (40, [""] * 40)


@pytest.mark.parametrize("concurrency", [1, 3, 64])
async def test_collect_gives_the_same_results_in_any_order_and_concurrency(concurrency: int) -> None:
    work = work_of(queries(6), 3)
    one_by_one = await collected(WaitingEnvironment(steps=3), work, limits=RolloutLimits(concurrency=1))
    backwards = await collected(
        WaitingEnvironment(seconds=0.001, steps=3), work[::-1], limits=RolloutLimits(concurrency=concurrency)
    )
    assert [what_happened(t) for t in one_by_one] == [what_happened(t) for t in backwards[::-1]]


async def test_collect_draws_other_numbers_for_every_seed_stream_iteration_scenario_and_rollout() -> None:
    async def number(seed: int = 1, stream: int = 0, key: tuple[int, int, int] = (2, 3, 4)) -> float:
        trajectory = await run_rollout(
            Scenario(3, "q"),
            RolloutKey(*key),
            RolloutPlan(
                environment=WaitingEnvironment(),
                runtime=ActionRuntime(UniformChooser()),
                reward=plain_reward,
                seed=seed,
                stream=stream,
                limits=RolloutLimits(),
            ),
        )
        return float(trajectory.evidence["number"])

    numbers = [await number(), await number(seed=2), await number(stream=1)]
    numbers += [await number(key=key) for key in ((3, 3, 4), (2, 4, 4), (2, 3, 5), (2, 4, 3))]
    assert len(set(numbers)) == len(numbers)
    assert await number() == numbers[0]


async def test_collect_reuses_what_was_kept_and_returns_everything_in_order() -> None:
    work = work_of(queries(4), 2)
    first: list[Trajectory] = []
    await collected(WaitingEnvironment(steps=2), work[:5], keep=first.append)
    kept = {t.key: t for t in first}
    environment, again = WaitingEnvironment(steps=2), list[Trajectory]()
    trajectories = await collected(environment, work, kept=kept, keep=again.append)
    assert [t.key for t in trajectories] == [key for key, _ in work]
    assert environment.started == [2, 3, 3]
    assert {t.key for t in again} == {key for key, _ in work[5:]}
    assert all(trajectories[i] is kept[work[i][0]] for i in range(5))
    whole = await collected(WaitingEnvironment(steps=2), work)
    assert [what_happened(t) for t in trajectories] == [what_happened(t) for t in whole]


async def test_collect_keeps_partial_steps_when_time_runs_out() -> None:
    environment = WaitingEnvironment(seconds=0.04, steps=100)
    [trajectory] = await collected(environment, work_of(queries(1)), limits=RolloutLimits(100, 0.1, 1))
    assert trajectory.error == "timeout: over 0.1 s"
    assert 1 <= len(trajectory.steps) <= 3
    assert (trajectory.success, trajectory.reward, trajectory.components) == (False, -1.0, {"timeout": -1.0})
    assert sum(step.reward for step in trajectory.steps) == -1.0
    assert environment.closed == 1


async def test_collect_also_stops_rollouts_that_never_wait() -> None:
    def busy(scenario: Scenario, step: int) -> None:
        time.sleep(0.02)

    environment = WaitingEnvironment(steps=100, surprise=busy)
    [trajectory] = await collected(environment, work_of(queries(1)), limits=RolloutLimits(100, 0.05, 1))
    assert trajectory.error.startswith("timeout:")
    assert 1 <= len(trajectory.steps) < 10


async def test_collect_lets_no_failing_rollout_stop_the_others() -> None:
    def breaks(scenario: Scenario, step: int) -> None:
        if scenario.index == 1 and step == 2:
            raise RuntimeError("the server fell over")

    trajectories = await collected(WaitingEnvironment(steps=4, surprise=breaks), work_of(queries(3)))
    failed = trajectories[1]
    assert [bool(t.error) for t in trajectories] == [False, True, False]
    assert failed.error == "environment: RuntimeError: the server fell over"
    assert (len(failed.steps), failed.success, failed.outcome) == (2, False, 0.0)
    assert math.isnan(failed.reward)  # not the agent's doing: it leaves its group's baseline


class Faulty(UniformChooser):
    """A policy whose ``choose`` is given."""

    def __init__(self, choose: Callable[[Observation], int]) -> None:
        super().__init__()
        self.chosen = choose

    def choose(self, observation: Observation, rng: Any, *, temperature: float) -> tuple[int, float]:
        return self.chosen(observation), 0.0


async def test_collect_names_the_boundary_that_failed() -> None:
    def no_model(observation: Observation) -> int:
        raise ConnectionError("no model")

    def no_reward(trajectory: Trajectory) -> Any:
        raise ZeroDivisionError("no judge")

    class NoStart(WaitingEnvironment):
        def start(self, scenario: Scenario, rng: Any) -> Any:
            raise OSError("no room")

    class NoRuntime:
        async def play(self, *_: Any, **__: Any) -> bool:
            raise KeyError("lost")

    class OwnTimeout:
        async def play(self, *_: Any, **__: Any) -> bool:
            raise TimeoutError("a socket's, not ours")

    work = work_of(queries(1))
    cases: list[tuple[str, dict[str, Any]]] = [
        ("policy: ConnectionError: no model", {"runtime": ActionRuntime(Faulty(no_model))}),
        ("reward: ZeroDivisionError: no judge", {"reward": no_reward}),
        ("environment: OSError: no room", {"environment": NoStart()}),
        ("runtime: KeyError: 'lost'", {"runtime": NoRuntime()}),
        ("runtime: TimeoutError: a socket's, not ours", {"runtime": OwnTimeout()}),
    ]
    for error, changed in cases:
        environment = changed.pop("environment", WaitingEnvironment())
        [trajectory] = await collected(environment, work, **changed)
        assert trajectory.error == error
        assert math.isnan(trajectory.reward)


async def test_collect_keeps_what_the_environment_said_when_the_reward_fails() -> None:
    def no_reward(trajectory: Trajectory) -> Any:
        raise ZeroDivisionError("no judge")

    [trajectory] = await collected(WaitingEnvironment(), work_of(queries(1)), reward=no_reward)
    assert trajectory.success and trajectory.outcome == 1.0


async def test_collect_ends_at_the_step_limit_and_says_so() -> None:
    [cut] = await collected(WaitingEnvironment(steps=30), work_of(queries(1)))
    assert (len(cut.steps), cut.truncated, cut.error) == (20, True, "")
    [whole] = await collected(WaitingEnvironment(steps=20), work_of(queries(1)))
    assert (len(whole.steps), whole.truncated) == (20, False)


async def test_collect_holds_the_step_limit_for_a_runtime_that_does_not() -> None:
    runtime = ActionRuntime(UniformChooser(), max_steps=50)
    [cut] = await collected(WaitingEnvironment(steps=99), work_of(queries(1)), runtime=runtime)
    assert (len(cut.steps), cut.truncated, cut.error) == (20, True, "")


async def test_collect_stops_within_one_step_when_interrupted_and_has_kept_all_that_ended() -> None:
    kept: list[Trajectory] = []

    def check() -> None:
        if len(kept) >= 3:
            raise Interrupted("paused")

    environment = WaitingEnvironment(seconds=0.01, steps=3)
    with pytest.raises(Interrupted, match="paused"):
        await collected(environment, work_of(queries(50)), keep=kept.append, check=check)
    assert 3 <= len(kept) <= 8  # of those that ended in the same moment
    assert len(environment.started) < 20
    assert environment.running == 0  # every episode that had begun was closed


async def test_collect_passes_on_any_exception_of_check_and_keep() -> None:
    class LeaseLost(Exception):
        pass

    def lost(*_: Any) -> None:
        raise LeaseLost

    for changed in ({"check": lost}, {"keep": lost}):
        with pytest.raises(LeaseLost):
            await collected(WaitingEnvironment(), work_of(queries(5)), **changed)


async def test_collect_gives_other_tasks_their_turn_though_no_rollout_ever_waits() -> None:
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.02)

    def busy(scenario: Scenario, step: int) -> None:
        time.sleep(0.005)

    beating = asyncio.create_task(heart())
    environment = WaitingEnvironment(surprise=busy)
    await collected(environment, work_of(queries(60)), limits=RolloutLimits(concurrency=2))
    beating.cancel()
    assert beats >= 6  # in 0.3 s of work


async def test_collect_forms_groups_and_numbers_a_repeated_scenario_on() -> None:
    scenarios = queries(2)
    groups = await collect_groups(
        [scenarios[0], scenarios[1], scenarios[0]],
        RolloutPlan(
            environment=WaitingEnvironment(),
            runtime=ActionRuntime(UniformChooser()),
            reward=plain_reward,
            seed=1,
            limits=RolloutLimits(),
            policy_version="v5",
            model="action",
        ),
        iteration=5,
        group_size=3,
        kept={},
        keep=nothing,
    )
    assert [g.scenario.index for g in groups] == [0, 1, 0]
    assert [[t.key for t in g.trajectories] for g in groups] == [
        [RolloutKey(5, 0, i) for i in range(3)],
        [RolloutKey(5, 1, i) for i in range(3)],
        [RolloutKey(5, 0, i) for i in range(3, 6)],
    ]
    assert {(t.policy_version, t.model) for g in groups for t in g.trajectories} == {("v5", "action")}


async def test_collect_records_a_state_from_which_the_observation_is_rebuilt_exactly() -> None:
    seen: list[Observation] = []

    class Watcher(UniformChooser):
        def choose(self, observation: Observation, rng: Any, *, temperature: float) -> tuple[int, float]:
            seen.append(observation)
            return super().choose(observation, rng, temperature=temperature)

    from experiences.rollouts.environments import environments

    environment = environments.get("reasoning_gym")({})
    scenarios = environment.scenarios("train", 16, 3)
    trajectories = await collected(environment, work_of(list(scenarios)), runtime=ActionRuntime(Watcher()))
    stored = json.loads(json.dumps([(t.query, [s.state for s in t.steps]) for t in trajectories]))
    rebuilt = [observation_of(query, state) for query, states in stored for state in states]
    assert rebuilt == seen
    assert {o.mask for o in rebuilt} != {None}


async def test_collect_measures_every_step() -> None:
    before = time.time()
    [trajectory] = await collected(WaitingEnvironment(seconds=0.02, steps=2), work_of(queries(1)))
    for step in trajectory.steps:
        assert before <= step.timestamp <= time.time()
        assert 15 < step.duration_ms < 200
        assert step.logprob == pytest.approx(-math.log(2))
    assert trajectory.duration_ms >= sum(step.duration_ms for step in trajectory.steps)


async def test_collect_blames_the_policy_for_an_action_that_is_not_allowed() -> None:
    from experiences.rollouts.environments import environments

    environment = environments.get("reasoning_gym")({})
    [scenario] = environment.scenarios("train", 1, 3)
    for choice in (len(environment.actions) - 1, len(environment.actions)):  # answer without a result; no action
        runtime = ActionRuntime(Faulty(lambda _, choice=choice: choice))
        [trajectory] = await collected(environment, work_of([scenario]), runtime=runtime)
        assert trajectory.error.startswith("policy: ")
