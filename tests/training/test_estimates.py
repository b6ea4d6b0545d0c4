"""What a run will cost: rollouts, looks, the proof and the questions of reflection, at measured or guessed rates."""

from __future__ import annotations

import math
from random import Random

import pytest

from budgets.pricing import Price, Usage, cost
from training.config import GRPOConfig
from training.estimates import QUESTION_TOKENS, REPLY_TOKENS, Rates, Work, guessed, looks, plan, questions, rates, work

PRICE = Price("small", 150_000, 600_000)


def test_a_first_guess_pays_for_calls_and_questions() -> None:
    found = guessed(PRICE, philosophy="cot", prompt_tokens=100, max_tokens=200, concurrency=4)
    assert found.question_micros == cost(PRICE, Usage(QUESTION_TOKENS, REPLY_TOKENS))
    without, asked = (plan(Work(100, 0, 0, n), found, at_start=0) for n in (0, 50))
    assert asked.cost_micros == pytest.approx(without.cost_micros + 50 * found.question_micros, abs=1)
    assert not found.measured and asked.dear_micros == pytest.approx(3 * asked.cost_micros, abs=3)


@pytest.mark.parametrize(
    ("iterations", "every", "gates", "n"),
    [
        (30, 10, 1, 4),  # before anything, 10, 20, 30
        (30, 10, 3, 4),  # gates fall on looks
        (12, 6, 3, 5),  # before, 4, 6, 8, 12
        (5, 10, 1, 2),
        (2, 1, 3, 3),  # fewer iterations than epochs
        (0, 10, 1, 1),
    ],
)
def test_looks_are_counted_once_where_they_coincide(iterations: int, every: int, gates: int, n: int) -> None:
    assert looks(iterations, every, gates) == n


def test_questions_are_counted_by_group_and_attempt() -> None:
    # Six reflections of four groups: four summaries, lessons and operations each, and one reconciliation.
    assert questions(10, every=1, until=0.6, groups=4, attempts=4) == 6 * (4 * 6 + 1)
    assert questions(10, every=3, until=1.0, groups=1, attempts=2) == 3 * 4
    assert questions(0, every=1, until=0.6, groups=4, attempts=4) == 0


def test_looks_and_proof_do_not_grow_with_the_iterations() -> None:
    def asked(n: int) -> Work:
        config = GRPOConfig(n_iterations=n, batch_size=2, n_trajectories_per_query=3, eval_interval=1_000)
        return work(config, n_train=50, n_selection=5, n_held_out=10)

    assert asked(100).trained == 100 * asked(1).trained == 600
    assert asked(100).looked == asked(1).looked > 0 and asked(100).proof == asked(1).proof > 0


def test_a_budget_buys_what_is_left_of_it_after_the_first_look_and_the_proof() -> None:
    found = plan(Work(trained=60, looked=20, proof=20), Rates(10.0, 100.0, n=50), at_start=10)
    assert (found.cost_micros, found.fixed_micros) == (10_000, 3_000)
    assert found.iterations_for(10_000, 10) == 10 and found.iterations_for(50_000, 10) == 10
    assert found.iterations_for(6_500, 10) == 5 and found.iterations_for(2_000, 10) == 0
    assert plan(Work(60, 20, 20), Rates(10.0, 0.0, n=50), at_start=10).iterations_for(1, 10) is None


@pytest.mark.parametrize(("n", "at_least"), [(20, 0.8), (100, 0.82)])
def test_the_dear_end_holds_about_nine_times_of_ten_though_costs_are_skewed(n: int, at_least: float) -> None:
    rng, m, below = Random(3), 300, 0
    for _ in range(400):
        costs = [rng.lognormvariate(5.0, 0.7) for _ in range(n + m)]
        dear = plan(Work(m, 0, 0), rates(1.0, costs[:n], []), at_start=0).dear_micros
        below += sum(costs[n:]) <= dear
    assert at_least <= below / 400 <= 0.96
    assert math.isfinite(plan(Work(m, 0, 0), rates(1.0, [5.0], []), at_start=0).dear_micros)
