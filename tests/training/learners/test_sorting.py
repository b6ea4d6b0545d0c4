"""A run sorts its queries by kind with one question, if it is set to; without a usable answer it goes by words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.context_runs import learned
from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import Body, SimulatedModel, simulated_server
from tests.support.simulated_prompt import schema_of
from tests.support.simulated_sorter import sorts
from tests.support.world_outside import OutsideW
from training.learners.context import ContextLearner
from training.schema import GRPOConfig

WORLD = OutsideW(9_001)
ROWS = WORLD.rows(40, 1)
SHORT: dict[str, Any] = {
    "n_iterations": 2,
    "batch_size": 2,
    "eval_interval": 2,
    "eval_samples": 1,
    "n_trajectories_per_query": 2,
}


class Unwilling(SimulatedModel):
    """Says the same to each question that wants queries sorted."""

    def __init__(self, said: str) -> None:
        super().__init__(WORLD, Habits())
        self.said = said

    def reply(self, body: Body) -> str:
        return self.said if sorts(schema_of(body) or {}) else super().reply(body)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD, habits=Habits()) as running:
        yield running


def run(server: ModelServer, **context: Any) -> Any:
    return learned(server.base_url, ROWS, {**SHORT, "context": {"group_tokens": 6000, **context}}, seed=1)


def asked(found: Any) -> list[Any]:
    return [one for one in found.answered if one.stage == "kinds"]


def test_one_question_sorts_the_training_queries_before_anything_is_learned(server: ModelServer) -> None:
    found = run(server, kinds=True)
    policy, train = found.state.policy, found.setup.train
    assert [one.usable for one in asked(found)] == [True] and asked(found)[0].cost_micros > 0
    assert found.reports[0].metrics["kinds"] >= policy.words.of_kinds.sum() > 3
    assert "kinds" not in found.reports[1].metrics and found.reports[0].warnings == []
    # Nine in ten are sorted as they are: queries of one topic share a column, whichever word they name it by.
    columns = {one.query: int(policy.words.of(one.query)[policy.words.of_kinds].argmax()) for one in train}
    topics = {one.query: WORLD.find(one.query)[0].kind.name for one in train}
    pairs = [(columns[query], topics[query]) for query in columns]
    together = sum(
        max(Counter(topic for other, topic in pairs if other == at).values()) for at in set(columns.values())
    )
    assert together > 0.7 * len(train)
    assert policy.evidence.features.shape[1] == policy.words.size


def test_a_run_that_is_not_set_to_sorts_nothing(server: ModelServer) -> None:
    found = run(server)
    assert not asked(found) and not found.state.policy.words.of_kinds.any() and "kinds" not in found.reports[0].metrics


@pytest.mark.parametrize(("said", "usable"), [("I would rather not.", False), ('{"kinds": []}', True)])
def test_an_answer_of_no_use_is_requested_once_more_and_then_words_are_left(
    server: ModelServer, said: str, usable: bool
) -> None:
    server.brain = Unwilling(said)
    found = run(server, kinds=True, propose=False)
    assert [(one.usable, one.repaired, one.calls) for one in asked(found)] == [(usable, True, 2)]
    assert not found.state.policy.words.of_kinds.any() and found.state.policy.words.size
    assert [one for one in found.reports[0].warnings if "could not sort the queries by kind" in one]
    assert found.reports[1].warnings == []


def test_kinds_are_no_setting_of_training_free_grpo() -> None:
    config = GRPOConfig.model_validate({"algorithm": "tfgrpo", "context": {"kinds": True}})
    assert "context.kinds changes nothing" in ContextLearner().unread("context.kinds", config)
