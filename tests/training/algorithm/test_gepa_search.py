"""GEPA's search by its answers: it goes on where the answers end, and stays the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training.algorithm.gepa_search import Evaluation, Rewriting, Search, Standing

SEARCH = Search("When old, keep.", tuple(range(12)), tuple(range(12, 18)), 3, seed=5)


def answer(asks: Evaluation | Rewriting, number: int) -> Any:
    """Scores rise with the lines of a text; every third rewriting changes nothing."""
    rng = random.Random(number)
    if isinstance(asks, Rewriting):
        return "" if number % 3 == 0 else f"{asks.text}\nWhen it is case {number}, look twice."
    lines = len(asks.text.splitlines())
    return [float(rng.random() < 0.2 + 0.1 * lines) for _ in asks.queries]


def played(n: int, search: Search = SEARCH) -> tuple[list[Any], list[Standing]]:
    answers: list[Any] = []
    found = []
    for number in range(n):
        found.append(search.standing(answers))
        answers.append(answer(found[-1].asks, number))
    return answers, found


def test_it_begins_with_the_validation_queries_and_the_text_that_it_was_given() -> None:
    first = SEARCH.standing([])
    assert first == Standing(Evaluation("When old, keep.", (12, 13, 14, 15, 16, 17)), "When old, keep.", 0.0)


def test_minibatches_are_of_training_queries_and_a_rewriting_follows_the_rollouts_that_it_reads() -> None:
    _, found = played(60)
    before: Evaluation | Rewriting | None = None
    for one in found:
        if isinstance(one.asks, Evaluation):
            whole = set(one.asks.queries) == set(SEARCH.validation)
            assert whole or (len(one.asks.queries) == 3 and set(one.asks.queries) <= set(SEARCH.train))
        else:
            assert isinstance(before, Evaluation) and before.text == one.asks.text
            assert set(before.queries) <= set(SEARCH.train)
        before = one.asks
    assert sum(isinstance(one.asks, Rewriting) for one in found) > 10


def test_the_best_text_is_the_one_with_the_highest_mean_on_the_validation_queries() -> None:
    answers, found = played(80)
    means: dict[str, float] = {}
    for one, said in zip(found, answers, strict=True):
        if means:
            assert one.score == pytest.approx(max(means.values()))
            assert means[one.best] == pytest.approx(one.score)
        if isinstance(one.asks, Evaluation) and set(one.asks.queries) == set(SEARCH.validation):
            means[one.asks.text] = sum(said) / len(said)
    assert len(means) > 2 and found[-1].best != SEARCH.start


def test_a_replay_of_any_length_asks_what_the_search_asked_then() -> None:
    answers, found = played(40)
    assert [SEARCH.standing(answers[:n]) for n in range(40)] == found


def test_another_seed_asks_other_queries() -> None:
    other = Search(SEARCH.start, SEARCH.train, SEARCH.validation, 3, seed=6)
    assert [one.asks for one in played(12)[1]] != [one.asks for one in played(12, other)[1]]


def test_a_search_with_fewer_queries_than_a_minibatch_goes_on() -> None:
    search = Search("", (0,), (0,), 3, seed=1)
    _, found = played(12, search)
    assert {one.asks.queries for one in found if isinstance(one.asks, Evaluation)} == {(0,)}


@pytest.mark.slow(reason="two new processes")
def test_a_process_with_another_order_of_hashes_replays_the_same_search() -> None:
    code = "from tests.training.algorithm.test_gepa_search import played; print(played(60)[1])"
    root = Path(__file__).parents[3]
    shown = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert shown[0] == shown[1] and "Rewriting" in shown[0]
