"""The cost of the smallest iteration (one query, two rollouts) over all processes, and what its parts are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from agentcore_site.celery import app
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.wakeup import messages_waiting
from tests import services
from tests.performance.jobs import people, start, warm_up
from tests.performance.processor import seconds_of
from tests.performance.table import Figure, at_most
from tests.support.running import run_to_end
from tests.support.workers import Fleet, eventually
from training.learners import Learner
from training.services.execution import TrainingSlice
from training.trainer.loop import _Loop

ITERATIONS = 1_000
TASKS = 2_000
BARE_TASK = "celery.backend_cleanup"  # there is no backend: it does nothing
SMALLEST = {"batch_size": 1, "n_trajectories_per_query": 2, "eval_interval": ITERATIONS, "eval_samples": 1}
SHIPPED = {"JOB_SWEEP_SECONDS": "5"}


def iteration() -> list[Figure]:
    """Processor time of worker, beat and services while a job of 1,000 smallest iterations runs, its start and its two
    looks at the selection queries included; then that of bare tasks on the same worker; then the parts of an iteration,
    in this process."""
    actor, home = people()
    assert services.stack is not None
    roots = {state.name: state.pid for state in services.stack.supervisor.states()}
    fleet = Fleet()
    try:
        roots |= {"worker": fleet.worker(**SHIPPED).pid, "beat": fleet.beat(**SHIPPED).pid}
        warm_up(actor, home)
        with measured(roots) as whole:
            run = start(actor, home, "smallest", n_iterations=ITERATIONS, seed=3, **SMALLEST)
            eventually(lambda: Job.objects.get(id=run.job_id).ended, seconds=300, why="the job of smallest iterations")
        assert Job.objects.get(id=run.job_id).status == Status.COMPLETED
        with measured(roots) as bare:
            for _ in range(TASKS):
                app.send_task(BARE_TASK, queue="jobs")
            eventually(lambda: not messages_waiting(), seconds=120, why="the bare tasks")
    finally:
        fleet.stop()
    spent = {name: 1000 * seconds / ITERATIONS for name, seconds in whole.items()}
    total, task = sum(spent.values()), 1000 * sum(bare.values()) / TASKS
    named = ", ".join(f"{name} {ms:.1f}" for name, ms in sorted(spent.items(), key=lambda one: -one[1]))
    figures = [
        at_most("14", f"the smallest iteration, processor time of all ({named})", total, 12, "ms", digits=1),
        at_most("14", "the same, in bare Celery tasks on the same worker", total / task, 12, "tasks", digits=1),
    ]
    limits = {"rollouts": 3, "update": 2, "commit": 5, "checkpoints": 1, "the rest": 1}
    parts = parts_of_an_iteration(actor, home)
    return figures + [
        at_most("14", f"of it in the worker: {name}", parts[name], limit, "ms") for name, limit in limits.items()
    ]


@contextmanager
def measured(roots: dict[str, int]) -> Iterator[dict[str, float]]:
    """Fills in the processor seconds that each of the processes takes until the block ends."""
    before = {name: seconds_of(pid) for name, pid in roots.items()}
    found: dict[str, float] = {}
    yield found
    found.update({name: seconds_of(pid) - before[name] for name, pid in roots.items()})


def parts_of_an_iteration(actor: Any, home: Any) -> dict[str, float]:
    """Milliseconds of processor time an iteration, by part. Those of the threads that keep the lease are in all."""
    spent: Counter[str] = Counter()
    collecting = _Loop._rollouts

    async def rollouts(self: _Loop, *args: Any) -> Any:
        began = time.process_time()
        found = await collecting(self, *args)
        spent["rollouts"] += time.process_time() - began
        return found

    learning = Learner.learn

    async def learn(self: Learner, *args: Any) -> Any:
        began = time.process_time()
        found = await learning(self, *args)
        spent["update"] += time.process_time() - began
        return found

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return work(*args, **kwargs)
            finally:
                spent[name] += time.process_time() - began

        return run

    run = start(actor, home, "parts", n_iterations=ITERATIONS, seed=3, **SMALLEST)
    with (
        mock.patch.object(_Loop, "_rollouts", rollouts),
        mock.patch.object(Learner, "learn", learn),
        mock.patch.object(TrainingSlice, "apply", timed("commit", TrainingSlice.apply)),
        mock.patch.object(TrainingSlice, "_write_checkpoint", timed("checkpoints", TrainingSlice._write_checkpoint)),
    ):
        began = time.process_time()
        assert run_to_end(run.job).status == Status.COMPLETED
        whole = time.process_time() - began
    spent["commit"] -= spent["checkpoints"]  # nearly all of them are written with an iteration
    spent["the rest"] = whole - sum(spent.values())
    return {name: 1000 * seconds / ITERATIONS for name, seconds in spent.items()}
