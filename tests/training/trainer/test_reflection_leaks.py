"""Leaks of right answers by a reflector: whole runs in a simulated world, with a reflector that gives many answers
and queries away, and the share of lessons that hold queries kept out of training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from experiences.learning.lessons.attempts import answers_of
from experiences.learning.lessons.guards import word_runs
from experiences.rollouts.types import Scenario
from tests.support.context_runs import learned
from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import simulated_server
from tests.support.world import World

WORLD = World(7)
ROWS = WORLD.rows(120, 7)
CONFIG = {
    "n_iterations": 8,
    "batch_size": 6,
    "n_trajectories_per_query": 6,
    "eval_samples": 2,
    "eval_interval": 8,
    "early_stopping": {"enabled": False},
}
CONTEXT = {"propose_until": 1.0, "min_mixed": 0.0, "gate_samples": 2, "gate_steps": 1, "show_answers": True}
LEAKS = ("gives the answer", "repeats 5 words")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD, habits=Habits(leaking=0.5)) as running:
        yield running


def letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def leaking(texts: Sequence[str], queries: Sequence[Scenario]) -> float:
    """The share of the texts that hold an answer of any of the queries, however it is spelt, or five of its words."""
    hidden = [letters(answer) for one in queries for answer in answers_of(one)]
    runs = frozenset[Any]().union(*(word_runs(one.query) for one in queries))
    found = [any(one in letters(text) for one in hidden) or bool(word_runs(text) & runs) for text in texts]
    return sum(found) / len(found)


@pytest.mark.slow(reason="whole runs of learning")
@pytest.mark.parametrize("group_tokens", [0, 8_000])
def test_no_lesson_holds_an_answer_of_a_query_though_the_reflector_reads_them(
    server: ModelServer, group_tokens: int
) -> None:
    server.requests.clear()
    finished = learned(server.base_url, ROWS, CONFIG | {"context": CONTEXT | {"group_tokens": group_tokens}}, seed=3)
    pools, policy = finished.pools, finished.state.policy
    said = [
        lesson["text"]
        for one in finished.answered
        if one.stage == "lessons" and one.reply
        for lesson in one.reply["lessons"]
    ]
    lessons = [lesson.text for lesson in policy.library]
    assert len(said) > 20 and leaking(said, pools.train) > 0.05  # it did try, and was shown the answers
    advice = [message["content"] for call in server.requests for message in call.body["messages"]]
    assert any("RIGHT ANSWER" in text for text in advice)
    assert lessons and leaking(lessons, pools.train) == 0
    assert leaking(lessons, [*pools.held_out, *pools.selection]) == 0
    # Its author received the fault of a lesson, and could mend it.
    assert any(f": it {why} of the query that taught it" in text for text in advice for why in LEAKS)
