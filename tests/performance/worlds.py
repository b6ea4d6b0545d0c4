"""Whole runs of the real trainer in many simulated worlds, beside what could be gained there.

``python -m tests.performance.worlds --workers 2 --worlds 40 --queries 150 --out FILE.jsonl``: no Django, database,
broker. Each world has a process of its own with its model server on loopback; one line of JSON has its result,
and a summary ends the bench. ``--null``: worlds in which no advice has any effect.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from statistics import fmean
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded: each world has one core
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from agentcore_site.outbound import OutboundPolicy, configure
from agentcore_site.outbound.addresses import AllowList
from tests.performance.worlds_summary import summary
from tests.support.context_runs import Finished, learned, success_of
from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import SimulatedModel, simulated_server
from tests.support.world_outside import OutsideG, OutsideV, OutsideW, OutsideWorld
from tests.support.world_second import SecondWorld
from tests.support.world_truth import Attainable, attainable
from tests.support.world_varied import VariedWorld

SERVERS: Final[Mapping[str, type[VariedWorld]]] = {
    "first": VariedWorld,
    "second": SecondWorld,
    **{f"outside-{one.form}": one for one in (OutsideWorld, OutsideV, OutsideW, OutsideG)},
}
SIZES: Final = (30, 60, 100, 150, 300)
SAMPLES: Final = 8  # of each held-out query
JUDGED: Final = 60  # queries by which a world is taken or left out
Result = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One world to learn in: ``queries`` rows of data, ``config`` beside the preset's defaults."""

    seed: int
    queries: int
    server: str
    null: bool
    config: Mapping[str, Any]

    def world(self) -> VariedWorld:
        return SERVERS[self.server](self.seed, null=self.null)

    def rows(self, world: VariedWorld) -> list[dict[str, Any]]:
        return world.rows(self.queries, self.seed)


def reachable(world: VariedWorld, found: Attainable) -> float:
    """The best possible gain of a learner: where no query names its topic, only one set for all can be chosen."""
    return found.fixed_gain if world.variation.wording == "hidden" else found.gain


def tasks(given: argparse.Namespace) -> Iterator[Task]:
    """The first worlds, by seed, in which at least ``--least`` can be gained; of null worlds all."""
    low, _, high = given.seeds.partition("-")
    for size in SIZES if given.queries == 0 else (given.queries,):
        seeds = range(int(low), int(high) + 1) if given.seeds else count()
        every = (Task(seed, size, given.server, given.null, json.loads(given.config)) for seed in seeds)
        yield from islice((one for one in every if given.null or _is_worth(one, given.least)), given.worlds)


def _is_worth(task: Task, least: float) -> bool:
    world = task.world()
    queries = [row["query"] for row in task.rows(world)[:JUDGED]]
    return reachable(world, attainable(world, queries, fixed=world.variation.wording == "hidden")) >= least


def measured(task: Task) -> Result:
    """One world from data to proof."""
    world, began = task.world(), time.perf_counter()
    with served(task, world) as server:
        run = learned(server.base_url, task.rows(world), task.config, seed=task.seed)
        seconds, owed, calls = time.perf_counter() - began, server.owed, dict(server.brain.calls)
        before = proved(run, server.brain, run.setup.fresh_state().policy, "baseline")
        after = proved(run, server.brain, run.state.policy, "trained")
    found = attainable(world, [scenario.query for scenario in run.pools.held_out])
    return {
        **asdict(task),
        **asdict(world.variation),
        **_decided(run),
        "held_out": len(run.pools.held_out),
        "base": before[0],
        "attainable": reachable(world, found),
        "oracle": found.gain,
        "fixed": found.fixed_gain,
        "delivered": after[0] - before[0],
        "measured": after[1] - before[1],
        "calls": calls,
        "prompt_tokens": owed.prompt_tokens,
        "completion_tokens": owed.completion_tokens,
        "seconds": round(seconds, 1),
    }


@contextmanager
def served(task: Task, world: VariedWorld) -> Iterator[ModelServer]:
    """The world's model on loopback."""
    drawn = Habits() if isinstance(world, OutsideWorld) else Habits.drawn(task.seed)
    habits = replace(drawn, repeating=world.variation.repeating)
    with simulated_server(world, habits=habits) as server:
        yield server


def proved(run: Finished, model: SimulatedModel, policy: Any, purpose: str) -> tuple[float, float]:
    """(true, sampled) mean success on the held-out queries: the truth of each call's context, as it arrived."""
    with model.truth() as noted:
        sampled = success_of(run, policy, samples=SAMPLES, purpose=purpose)
    return fmean(fmean(chances) for chances in noted.values()), float(sampled.mean())


def _decided(run: Finished) -> Result:
    gates = [report.gate for report in run.reports if report.gate is not None]
    last = gates[-1] if gates else None
    return {
        "shipped": bool(run.shipped),
        "told": len(run.shipped),
        "iterations": len(run.reports),
        "selection": len(run.setup.selection),
        "why": "" if last is None else last.why,
        "p": None if last is None else last.p_value,
        "looks": None if last is None else last.looks,
        "gate_gain": None if last is None else last.gain,
    }


def allow_loopback() -> None:
    """For the bench's own processes: who may be called is one rule for a whole process."""
    configure(lambda: OutboundPolicy(AllowList.of(("127.0.0.0/8",))))


def results(measure: Callable[[Task], Result], chosen: Sequence[Task], workers: int) -> Iterator[Result]:
    """The result of each world, in the order in which they end. A world that fails says so and stops no other."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, max_tasks_per_child=1, initializer=allow_loopback) as pool:
        running: dict[Future[Result], Task] = {pool.submit(measure, one): one for one in chosen}
        for done in as_completed(running):
            error = done.exception()
            yield {**asdict(running[done]), "error": repr(error)} if error else done.result()


def main(arguments: Sequence[str]) -> int:
    print(summary(recorded(measured, parser(__doc__, "worlds.jsonl").parse_args(arguments), _line)))
    return 0


def recorded(
    measure: Callable[[Task], Result], given: argparse.Namespace, line: Callable[[Result], str] = lambda _: ""
) -> list[Result]:
    """The result of each requested world, stored as it comes; ``line`` reports it to the caller."""
    chosen, found = list(tasks(given)), list[Result]()
    with Path(given.out).open("w") as out:
        for one in results(measure, chosen, given.workers):
            found.append(one)
            print(json.dumps(one), file=out, flush=True)
            said = one.get("error") or line(one)
            head = f"{len(found)}/{len(chosen)} seed {one['seed']}, {one['queries']} queries"
            print(f"{head}: {said}" if said else head, file=sys.stderr, flush=True)
    return found


def _line(one: Result) -> str:
    return (
        f"1/{one['one_in']} {one['wording']}, told {one['told']}, {100 * one['delivered']:+.1f} of "
        f"{100 * one['attainable']:.1f} points, {sum(one['calls'].values())} calls, {one['seconds']:.0f} s"
    )


def parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """The options that say which worlds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workers", type=int, default=2, help="worlds at once, each with a core")
    parser.add_argument("--worlds", type=int, default=40, help="worlds of each size at most")
    parser.add_argument("--queries", type=int, default=150, help=f"rows of data; 0 for all of {SIZES}")
    parser.add_argument("--out", default=out, help="file with one line for each world")
    parser.add_argument("--null", action="store_true", help="no advice has any effect")
    parser.add_argument("--seeds", default="", help="a-b: only these seeds")
    parser.add_argument("--server", choices=sorted(SERVERS), default="first", help="how the model is built")
    parser.add_argument("--least", type=float, default=0.2, help="worlds in which less can be gained are left out")
    parser.add_argument("--config", default="{}", help='settings as JSON, such as {"n_iterations": 12}')
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
