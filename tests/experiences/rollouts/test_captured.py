"""Captured tokens: packed and read back, and joined into rows by the exact-prefix rule only."""

from __future__ import annotations

import math
import random

import pytest

from experiences.rollouts.captured import SampledTokens, rows_of
from experiences.rollouts.types import Step


def call(prompt: list[int], said: list[int]) -> SampledTokens:
    return SampledTokens(tuple(prompt), tuple(said), tuple(-0.5 * one for one in range(len(said))))


def steps_of(*calls: SampledTokens | None) -> list[Step]:
    found: list[Step] = []
    before: SampledTokens | None = None
    for one in calls:
        found.append(Step({}, {}, {}, sampled="" if one is None else one.packed(before)))
        before = one or before
    return found


def test_a_conversation_is_one_row_as_long_as_each_prompt_begins_with_what_was_said_before() -> None:
    rows = rows_of(steps_of(call([1, 2], [3, 4]), None, call([1, 2, 3, 4, 5], [6]), call([1, 2, 3, 4, 5, 6, 7], [8])))
    assert [row.ids for row in rows] == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert rows[0].step == [-1, -1, 0, 0, -1, 2, -1, 3]
    assert rows[0].logprob == [0.0, 0.0, -0.0, -0.5, 0.0, -0.0, 0.0, -0.0]


def test_an_answer_that_is_written_in_other_tokens_begins_a_new_row() -> None:
    rows = rows_of(steps_of(call([1, 2], [3, 4]), call([1, 2, 34, 5], [6]), call([1, 2, 34, 5, 6, 9], [7])))
    assert [row.ids for row in rows] == [[1, 2, 3, 4], [1, 2, 34, 5, 6, 9, 7]]
    assert rows[1].step == [-1, -1, -1, -1, 1, -1, 2]


def test_packed_calls_are_read_back_and_a_later_call_leaves_out_the_earlier_text() -> None:
    rng = random.Random(5)
    first = call([rng.randrange(150_000) for _ in range(2_000)], [rng.randrange(150_000) for _ in range(200)])
    second = call([*first.whole, 7], [8, 9])
    assert second.follows(first) and not first.follows(None)
    packed = first.packed(None), second.packed(first)
    assert len(packed[1]) < 60 and len(packed[0]) < 5 * 2_200
    assert SampledTokens.unpacked(packed[0], None).whole == first.whole
    assert SampledTokens.unpacked(packed[1], first) == second
    exact = SampledTokens((1,), (2,), (-math.pi,))
    assert SampledTokens.unpacked(exact.packed(None), None).logprobs == pytest.approx((-math.pi,), abs=1e-6)


@pytest.mark.parametrize("text", ["=", "=!", "=abc", "+" + call([1], [2]).packed(None)[1:], "=" + "0" * 40])
def test_damaged_data_is_refused_and_not_misread(text: str) -> None:
    with pytest.raises(ValueError):
        SampledTokens.unpacked(text, None)


def test_tokens_without_as_many_probabilities_are_refused() -> None:
    with pytest.raises(ValueError):
        SampledTokens((1,), (2, 3), (-1.0,))
