"""What a run will cost before anything was measured: rollouts, looks, and the questions of reflection."""

from __future__ import annotations

import pytest

from budgets.pricing import Price, Usage, cost
from training.estimates import QUESTION_TOKENS, REPLY_TOKENS, Measured, looks, questions

PRICE = Price("small", 150_000, 600_000)


def guessed(asked: float) -> Measured:
    return Measured.guessed(
        PRICE, philosophy="cot", prompt_tokens=100, max_tokens=200, looks=1.0, concurrency=4, questions=asked
    )


def test_each_question_is_paid_for_and_takes_time() -> None:
    without, asked = guessed(0.0), guessed(0.5)
    each = cost(PRICE, Usage(QUESTION_TOKENS, REPLY_TOKENS))
    assert asked.micros_per_trajectory == pytest.approx(without.micros_per_trajectory + 0.5 * each)
    assert asked.ms_per_trajectory > without.ms_per_trajectory


@pytest.mark.parametrize(
    ("iterations", "every", "gates", "n"),
    [
        (30, 10, 1, 4),  # before anything, 10, 20, 30
        (30, 10, 3, 4),  # gates fall on looks
        (12, 6, 3, 5),  # before, 4, 6, 8, 12
        (5, 10, 1, 2),
        (2, 1, 3, 3),  # fewer iterations than epochs
    ],
)
def test_looks_are_counted_once_where_they_coincide(iterations: int, every: int, gates: int, n: int) -> None:
    assert looks(iterations, every, gates) == n


def test_questions_are_counted_by_group_and_attempt() -> None:
    # Six reflections of four groups: four summaries, lessons and operations each, and one reconciliation.
    assert questions(10, every=1, until=0.6, groups=4, attempts=4) == 6 * (4 * 6 + 1)
    assert questions(10, every=3, until=1.0, groups=1, attempts=2) == 3 * 4
    assert questions(0, every=1, until=0.6, groups=4, attempts=4) == 0
