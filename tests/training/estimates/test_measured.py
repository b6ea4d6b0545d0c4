"""The estimated cost of a run: rollouts, validations, the proof and reflection, at measured or guessed rates."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from budgets.pricing import Price, Usage, cost_micros
from training.estimates.measured import (
    ATTEMPT_TOKENS,
    QUESTION_TOKENS,
    REPLY_TOKENS,
    TRAINED_TOKENS_PER_S,
    UNKNOWN_SPREAD,
    Rates,
    Work,
    affordable,
    guessed,
    guessed_learning_micros,
    guessed_question_micros,
    passes,
    plan,
    questions,
    rates,
    reflection_micros,
    reflections,
    spread_between_jobs,
    validations,
    work,
)
from training.schema import GRPOConfig

PRICE = Price("small", 150_000, 600_000)


def test_a_first_guess_pays_for_calls_and_questions() -> None:
    question = guessed_question_micros(PRICE)
    result = guessed(
        PRICE, question_micros=question, philosophy="cot", prompt_tokens=100, max_tokens=200, concurrency=4
    )
    assert result.question_micros == cost_micros(PRICE, Usage(QUESTION_TOKENS, REPLY_TOKENS))
    without, asked = (plan(Work(100, 0, 0, n), result) for n in (0, 50))
    assert asked.cost_micros == pytest.approx(without.cost_micros + 50 * result.question_micros, abs=1)
    assert not result.measured and asked.dear_micros == pytest.approx(3 * asked.cost_micros, abs=3)


@pytest.mark.parametrize(
    ("iterations", "every", "gates", "n"),
    [
        (30, 10, 1, 4),  # before anything, 10, 20, 30
        (30, 10, 3, 4),  # gates fall on validations
        (12, 6, 3, 5),  # before, 4, 6, 8, 12
        (5, 10, 1, 2),
        (2, 1, 3, 3),  # fewer iterations than epochs
        (0, 10, 1, 1),
    ],
)
def test_validations_are_counted_once_where_they_coincide(iterations: int, every: int, gates: int, n: int) -> None:
    assert validations(iterations, every, gates) == n


def test_each_step_of_a_search_is_a_validation() -> None:
    assert validations(30, 10, 3, 2) == 1 + 15
    assert validations(7, 10, 2, 3) == 1 + 4  # 3, 4, 6, 7


def test_questions_are_counted_by_group_and_attempt() -> None:
    # Six reflections of four groups: four summaries, lessons and operations each, and one reconciliation.
    assert questions(reflections(10, 1, 0.6), groups=4, attempts=4) == 6 * (4 * 6 + 1)
    assert questions(reflections(10, 3, 1.0), groups=1, attempts=2) == 3 * 4
    assert questions(reflections(0, 1, 0.6), groups=4, attempts=4) == 0


def test_whole_groups_are_priced_by_their_tokens_or_as_summaries_whichever_is_dearer() -> None:
    def cost_of(group_tokens: int) -> float:
        context = {"propose_until": 1.0, "reflect_groups": 1, "group_tokens": group_tokens}
        config = GRPOConfig(n_iterations=10, n_trajectories_per_query=8, context=context)
        result = work(config, n_train=50, n_selection=5, n_held_out=5, learns_context=True)
        return reflection_micros(result, Rates(1.0, 0.0, question_micros=500.0, shown_micros=1.0))

    assert cost_of(0) == cost_of(1_000) == 10 * 6 * 500  # four summaries cost more than so few tokens
    assert cost_of(6_000) == 10 * (2 * 500 + 6_000)
    assert cost_of(100_000) == 10 * (2 * 500 + 8 * ATTEMPT_TOKENS)  # eight attempts have no more


def test_validations_and_proof_do_not_grow_with_the_iterations() -> None:
    def asked(n: int) -> Work:
        config = GRPOConfig(n_iterations=n, batch_size=2, n_trajectories_per_query=3, eval_interval=1_000)
        return work(config, n_train=50, n_selection=5, n_held_out=10)

    assert asked(100).trained == 100 * asked(1).trained == 600
    assert asked(100).validation == asked(1).validation > 0 and asked(100).proof == asked(1).proof > 0


def test_a_budget_buys_training_after_validations_and_proof() -> None:
    config = GRPOConfig(n_iterations=10, batch_size=2, n_trajectories_per_query=3, eval_interval=5, eval_samples=1)
    pools = {"n_train": 50, "n_selection": 10, "n_held_out": 5}
    result = Rates(10.0, 100.0, n=50)
    assert affordable(config, result, 50_000, **pools) == 10
    # 60 rollouts to learn from, 3 validations of 10 and a proof of 2 x 5: $0.01; one iteration less saves a validation.
    assert plan(work(config, **pools), result).cost_micros == 10_000
    assert affordable(config, result, 10_000, **pools) == 10 and affordable(config, result, 9_999, **pools) == 9
    for room in range(0, 11_000, 500):
        n = affordable(config, result, room, **pools)
        assert n is not None
        if n:  # exactly so many: they fit, and one more does not
            assert plan(work(config.model_copy(update={"n_iterations": n}), **pools), result).cost_micros <= room
        if n < 10:
            more = config.model_copy(update={"n_iterations": n + 1})
            assert plan(work(more, **pools), result).cost_micros > room
    assert affordable(config, Rates(10.0, 0.0, n=50), 1, **pools) is None


@pytest.mark.parametrize(("n", "at_least"), [(20, 0.8), (100, 0.82)])
def test_the_dear_end_allows_for_skewed_costs_of_rollouts(n: int, at_least: float) -> None:
    rng, m, below = Random(3), 300, 0
    same = [1.0] * 5  # jobs that all came out as planned: what is left is the spread within a job
    for _ in range(400):
        costs = [rng.lognormvariate(5.0, 0.7) for _ in range(n + m)]
        dear = plan(Work(m, 0, 0), rates(1.0, costs[:n], []), ratios=same).dear_micros
        below += sum(costs[n:]) <= dear
    assert at_least <= below / 400 <= 0.96
    assert math.isfinite(plan(Work(m, 0, 0), rates(1.0, [5.0], [])).dear_micros)


def test_nine_of_ten_jobs_stay_below_the_dear_end_though_each_job_has_its_own_price() -> None:
    """Rollouts of a job share its lessons: jobs lie 25 % apart, and the mean of their rollouts does not."""
    rng, n, m = Random(11), 60, 200
    below = {"jobs": 0, "factor": 0}
    for _ in range(500):
        levels = [rng.lognormvariate(7.0, 0.25) for _ in range(9)]
        # Each was planned from the one before it; the last one is still to come.
        ratios = [after / before for before, after in pairwise(levels[:-1])]
        pilot = rates(1.0, [levels[-2] * rng.lognormvariate(0, 0.3) for _ in range(n)], [])
        paid = sum(levels[-1] * rng.lognormvariate(0, 0.3) for _ in range(m))
        for name, known in (("jobs", ratios), ("factor", ratios[:4])):
            result = plan(Work(m, 0, 0), pilot, ratios=known)
            assert result.basis == name
            below[name] += paid <= result.dear_micros
    assert below["jobs"] / 500 >= 0.88, below
    assert below["factor"] / 500 >= 0.8, below  # a stated factor, and not said to hold nine times of ten


def test_too_few_jobs_give_no_spread() -> None:
    assert spread_between_jobs([1.0, 1.2, 0.9, 1.1]) is None
    assert spread_between_jobs([1.1] * 5) == pytest.approx(1.1)
    result = plan(Work(100, 0, 0), Rates(1.0, 100.0, sd_micros=1.0, n=4_000))
    assert (result.basis, result.dear_micros) == ("factor", UNKNOWN_SPREAD * result.cost_micros)


def test_training_calls_are_guessed_by_tokens_seconds_and_surcharges_for_each_pass() -> None:
    known = {"philosophy": "cot", "prompt_tokens": 100, "max_tokens": 50}
    config = GRPOConfig(num_iterations=2, batch_size=4, n_trajectories_per_query=4)
    free, priced = Price("tiny/train", 0, 0), Price("tiny/train", 2_000_000, 0, per_call_micros=160)
    assert guessed_learning_micros(config, free, 0.0, **known) == 0.0
    tokens, passes_of_two_steps = 500 + 100 + 50, 4
    # Six calls: log-probabilities, gradient and Adam of each step. 2 micro-dollars a token, 160 a call of 16 rollouts.
    assert passes(config) == passes_of_two_steps
    assert guessed_learning_micros(config, priced, 0.0, **known) == pytest.approx(
        passes_of_two_steps * tokens * 2 + 6 * 10
    )
    seconds = passes_of_two_steps * tokens / TRAINED_TOKENS_PER_S
    assert guessed_learning_micros(config, free, 3.6, **known) == pytest.approx(seconds * 1_000)
    assert passes(config.model_copy(update={"beta": 0.1})) == 5  # and those of the reference


def test_a_plan_pays_training_calls_for_what_is_learned_from_only() -> None:
    found, asked = Rates(1.0, 10.0, learned_micros=5.0), Work(trained=100, validation=20, proof=30)
    assert plan(asked, found).cost_micros == 150 * 10 + 100 * 5
    config = GRPOConfig(n_iterations=10, batch_size=2, n_trajectories_per_query=3, eval_interval=5, eval_samples=1)
    pools = {"n_train": 50, "n_selection": 10, "n_held_out": 5}
    only = Rates(1.0, 0.0, learned_micros=10.0)  # the model is free, its training is not: six rollouts an iteration
    assert affordable(config, only, 300, **pools) == 5


def test_a_gate_is_expected_to_take_half_of_the_samples_after_its_first_analysis() -> None:
    """It stops when it is decided: between its first analysis alone and all of its analyses, at both sides."""

    def rollouts(steps: int) -> int:
        config = GRPOConfig(n_iterations=10, context={"gate_steps": steps, "gate_samples": 4 * steps})
        return work(config, n_train=50, n_selection=5, n_held_out=5, learns_context=True).validation

    first_alone, all_analyses = rollouts(1), rollouts(1) + 2 * (6 - 1) * 4 * 5
    assert rollouts(6) == (first_alone + all_analyses) / 2
