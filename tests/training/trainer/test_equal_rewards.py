"""A run whose groups never differ stops; one that learns does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.context_runs import Finished, learned
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import Body, SimulatedModel, simulated_server
from tests.support.simulated_prompt import schema_of
from tests.support.world import World
from training.algorithm.convergence import groups_until_stop
from training.trainer import TrainerState, steps
from training.trainer.loop import ALL_ITERATIONS
from training.trainer.selection import EQUAL_REWARDS

CONFIG = {"n_iterations": 40, "batch_size": 8, "n_trajectories_per_query": 4, "eval_interval": 40}
STOPS = groups_until_stop(320, 0.1)


class Hopeless(SimulatedModel):
    """It never answers a query rightly."""

    def reply(self, body: Body) -> str:
        return super().reply(body) if schema_of(body) else "Answer: no idea"


def run(brain: type[SimulatedModel], seed: int, **changes: Any) -> Finished:
    world = World(seed)
    with simulated_server(world, habits=Habits()) as server:
        server.brain = brain(world, Habits())
        return learned(server.base_url, world.rows(60, seed), CONFIG | changes, seed=seed)


def longest_row(finished: Finished) -> int:
    return max(int(report.metrics["equal_groups"]) for report in finished.reports)


def test_a_run_in_which_no_attempt_ever_succeeds_stops_at_the_stated_group() -> None:
    finished = run(Hopeless, 3)
    assert finished.state.stop_reason == EQUAL_REWARDS
    assert len(finished.reports) == -(-STOPS // 8) < 20
    last = finished.reports[-1]
    assert last.stop_reason == EQUAL_REWARDS and last.selection is not None  # it ends as any other run does
    assert last.gate is not None and not last.gate.accepted and last.gate.looks == 0  # and pays for no comparison


def test_it_goes_on_where_people_switch_that_off() -> None:
    finished = run(Hopeless, 3, n_iterations=20, context={"stop_when_equal": False, "min_mixed": 0.3})
    assert groups_until_stop(160, 0.3) < 160
    assert (finished.state.stop_reason, len(finished.reports)) == (ALL_ITERATIONS, 20)


def test_the_row_of_equal_groups_is_kept_with_the_state() -> None:
    finished = run(Hopeless, 3, n_iterations=3)
    state, setup = finished.state, finished.setup
    assert setup.state_of(state.to_bytes()).policy.equal == state.policy.equal == 24  # type: ignore[attr-defined]
    stored: Any = state.policy.state_dict()
    del stored["equal"]  # as earlier releases wrote it
    assert setup.learner.from_state_dict(stored).equal == 0  # type: ignore[attr-defined]


def test_a_stopped_run_that_is_loaded_again_does_nothing_more() -> None:
    finished = run(Hopeless, 3)
    again: TrainerState = finished.setup.state_of(finished.state.to_bytes())
    assert list(steps(replace(finished.setup), again)) == []


@pytest.mark.thorough(reason="whole runs in several worlds")
@pytest.mark.parametrize("seed", [1, 5, 11])
def test_runs_that_learn_are_never_stopped(seed: int) -> None:
    finished = run(SimulatedModel, seed)
    assert finished.state.stop_reason == ALL_ITERATIONS
    assert longest_row(finished) < STOPS / 2
