"""Rollouts: one attempt at a scenario, many at once, failures as data.

Every rollout has its own random numbers, drawn from (stream, seed, iteration, scenario, rollout): what it does
depends neither on the order nor on how many run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiences.rollouts.code.blocks import python_in
from experiences.rollouts.code.quality import code_quality, row_tests
from experiences.rollouts.environments.base import Environment, Episode
from experiences.rollouts.interruption import interruptible
from experiences.rollouts.rewards.base import VERDICT, Reward, inspects_code, rubric_of
from experiences.rollouts.rewards.bounded import pay_in_time
from experiences.rollouts.rewards.signals import CODE_QUALITY
from experiences.rollouts.rollout_clock import Clock
from experiences.rollouts.runtimes.action import described
from experiences.rollouts.runtimes.base import (
    EnvironmentFailure,
    Halted,
    Judging,
    RolloutAttempt,
    RolloutFailure,
    Runtime,
)
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup, final_answer

BREATH_SECONDS = 0.01  # how long rollouts that never wait may keep the event loop from its other tasks


# Takes a rollout that has ended. What it returns, if anything, is awaited before another one begins in its place: so at
# most as many as run at once are begun and not yet written.
Keep = Callable[[Trajectory], Awaitable[None] | None]


class _Stopped(BaseException):
    """Carries what ``check`` raised past all code that catches exceptions on the way."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class _StepLimit(BaseException):
    """The rollout's limit of steps, for a runtime that does not keep to it by itself."""


class _OutOfTime(BaseException):
    """The rollout's time is over, found between two steps (work that never awaits cannot be timed out)."""


@dataclass(frozen=True)
class RolloutLimits:
    """At most ``max_steps`` steps and ``timeout_seconds`` seconds for each rollout, ``concurrency`` at once.

    Waiting for a model's service does not count (``experiences.rollouts.rollout_clock``); the answers' own latency
    does.
    """

    max_steps: int = 20
    timeout_seconds: float = 300.0
    concurrency: int = 8


def _go_on() -> None:
    """The default ``check``: nothing interrupts."""


@dataclass(frozen=True)
class RolloutPlan:
    """Shared settings of rollouts that are collected together. ``check`` is called before each step and during waits,
    and raises to interrupt. ``stream`` keeps the random numbers of training and evaluation apart."""

    environment: Environment
    runtime: Runtime
    reward: Reward
    seed: int
    limits: RolloutLimits
    check: Callable[[], None] = _go_on
    stream: int = 0
    policy_version: str = ""
    model: str = ""


async def run_rollout(scenario: Scenario, key: RolloutKey, plan: RolloutPlan) -> Trajectory:
    """Plays ``scenario`` once and scores it. A failure is a trajectory with its partial steps and an ``error``
    that names the boundary ("timeout: ...", "environment: ...", "policy: ...", "runtime: ...", "reward: ...").

    Raises:
        What ``plan.check`` raises before a step (pause, cancel, lost lease), as it is.
        Halted: the run as a whole can't go on for now (the reward out of time is one such cause); what this rollout did
            is dropped.
    """
    trajectory = Trajectory(
        key=key,
        query=scenario.query,
        steps=[],
        policy_version=plan.policy_version,
        model=plan.model,
        started_at=time.time(),
    )
    started = time.perf_counter()
    rng = np.random.default_rng((plan.stream, plan.seed, key.iteration, key.scenario, key.rollout))
    limits, reward = plan.limits, plan.reward
    clock = Clock(limits.timeout_seconds)
    guard = _guard(trajectory.steps, plan.check, limits.max_steps, clock)
    try:
        async with clock.running():
            await _play(trajectory, scenario, plan, rng, guard)
            await _judge(trajectory, scenario, plan.runtime, reward)
    except _Stopped as stopped:
        # "from None" would wipe out why ``check`` raised.
        raise stopped.cause from stopped.cause.__cause__
    except Halted:
        raise
    except _OutOfTime:
        _fail(trajectory, f"timeout: over {limits.timeout_seconds:g} s")
    except TimeoutError as error:
        over = f"timeout: over {limits.timeout_seconds:g} s"
        _fail(trajectory, over if clock.over else f"runtime: {described(error)}")
    except RolloutFailure as failure:
        _fail(trajectory, f"{failure.boundary}: {failure}")
    except Exception as error:  # a failing rollout never stops the others
        _fail(trajectory, f"runtime: {described(error)}")
    await _inspect(trajectory, scenario, reward)
    await pay_in_time(reward, trajectory)
    trajectory.duration_ms = (time.perf_counter() - started) * 1e3
    return trajectory


async def _play(
    trajectory: Trajectory,
    scenario: Scenario,
    plan: RolloutPlan,
    rng: np.random.Generator,
    guard: Callable[[], None],
) -> None:
    try:
        episode = plan.environment.start(scenario, rng)
    except Exception as error:
        raise EnvironmentFailure(described(error)) from error
    try:
        try:
            attempt = RolloutAttempt(trajectory.key, scenario, episode, rng, trajectory.steps.append, guard)
            ended = await plan.runtime.play(attempt)
        except _StepLimit:
            ended = False
        trajectory.truncated = not ended
        _score(trajectory, episode)
    finally:
        await _close(episode)


async def _judge(trajectory: Trajectory, scenario: Scenario, runtime: Runtime, reward: Reward) -> None:
    """Asks the judge where the reward has a rubric and the runtime has a model."""
    rubric = rubric_of(reward)
    if rubric is not None and isinstance(runtime, Judging):
        trajectory.evidence[VERDICT] = dict(await runtime.verdict(rubric, scenario, trajectory))


async def _inspect(trajectory: Trajectory, scenario: Scenario, reward: Reward) -> None:
    """Has the answer's code checked where the reward counts it and the environment said nothing of it. It takes no time
    from the rollout's own limit."""
    if trajectory.error or CODE_QUALITY in trajectory.evidence or not inspects_code(reward):
        return
    if code := python_in(final_answer(trajectory.steps) or ""):
        trajectory.evidence[CODE_QUALITY] = await asyncio.to_thread(code_quality, code, row_tests(scenario.metadata))


def _fail(trajectory: Trajectory, error: str) -> None:
    trajectory.error = error
    trajectory.success, trajectory.outcome = False, 0.0


def _score(trajectory: Trajectory, episode: Episode) -> None:
    try:
        outcome = episode.outcome()
    except Exception as error:
        raise EnvironmentFailure(described(error)) from error
    trajectory.outcome = outcome.score
    trajectory.success = outcome.success
    trajectory.evidence = dict(outcome.evidence)


async def _close(episode: Episode) -> None:
    with contextlib.suppress(Exception):  # the record is complete: a failing clean-up adds nothing to it
        await episode.close()


def _guard(steps: list[Step], check: Callable[[], None], max_steps: int, clock: Clock) -> Callable[[], None]:
    """Returns the check that runs before each step: the caller's check, the step limit and the time limit."""

    def guard() -> None:
        try:
            check()
        except Exception as error:
            raise _Stopped(error) from error
        if len(steps) >= max_steps:
            raise _StepLimit
        if clock.over:
            raise _OutOfTime

    return guard


async def collect(
    work: Sequence[tuple[RolloutKey, Scenario]],
    plan: RolloutPlan,
    *,
    kept: Mapping[RolloutKey, Trajectory],
    keep: Keep,
) -> list[Trajectory]:
    """Runs the rollouts of ``work``, at most ``plan.limits.concurrency`` at once, and returns them in its order.

    Those in ``kept`` are reused and not run again; each new one is passed to ``keep`` as soon as it ends. The
    pool has no barriers: as one rollout ends, and ``keep`` has written it where it says when, the next begins.

    Raises:
        What ``plan.check`` or ``keep`` raises, as it is; what had ended was kept, rollouts under way are dropped.
        Halted: a rollout could not be paid for, or its model is away. None was begun after that, and those under
            way went on to their own end: a call that is cut off is paid for all the same.
    """
    results: list[Trajectory | None] = [kept.get(key) for key, _ in work]
    waiting = iter([index for index, trajectory in enumerate(results) if trajectory is None])

    async def run(index: int) -> None:
        key, scenario = work[index]
        trajectory = await run_rollout(scenario, key, plan)
        if (written := keep(trajectory)) is not None:
            await written
        results[index] = trajectory

    left = sum(trajectory is None for trajectory in results)
    async with interruptible(plan.check):
        await _in_pool(waiting, run, min(plan.limits.concurrency, left))
    return [trajectory for trajectory in results if trajectory is not None]


async def _in_pool(waiting: Iterator[int], run: Callable[[int], Coroutine[Any, Any, None]], size: int) -> None:
    """Awaits ``run`` for every index, ``size`` at once; the first exception cancels the others and is raised, but
    the first ``Halted`` only keeps further ones from being begun."""
    turn = BREATH_SECONDS / max(size, 1)  # the loop gives every worker a turn before it looks after its timers
    halted: list[Halted] = []

    async def worker() -> None:
        breathed = time.perf_counter()
        for index in waiting:
            try:
                await run(index)
            except Halted as halt:
                halted.append(halt)
            if halted:
                return
            if time.perf_counter() - breathed > turn:
                await asyncio.sleep(0)
                breathed = time.perf_counter()

    if size <= 1:
        await worker()
    else:
        workers = [asyncio.create_task(worker()) for _ in range(size)]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    if halted:
        raise halted[0]


async def collect_groups(
    scenarios: Sequence[Scenario],
    plan: RolloutPlan,
    *,
    iteration: int,
    group_size: int,
    kept: Mapping[RolloutKey, Trajectory],
    keep: Keep,
) -> list[TrajectoryGroup]:
    """``group_size`` rollouts of each scenario, as groups in the order of ``scenarios``. A scenario that is
    in the list twice gets other rollouts, not the same again. Raises what ``collect`` raises."""
    work: list[tuple[RolloutKey, Scenario]] = []
    seen: dict[int, int] = {}
    for scenario in scenarios:
        first = seen.get(scenario.index, 0)
        seen[scenario.index] = first + group_size
        work += [(RolloutKey(iteration, scenario.index, first + i), scenario) for i in range(group_size)]
    trajectories = await collect(work, plan, kept=kept, keep=keep)
    return [
        TrajectoryGroup(scenario, trajectories[i * group_size : (i + 1) * group_size])
        for i, scenario in enumerate(scenarios)
    ]
