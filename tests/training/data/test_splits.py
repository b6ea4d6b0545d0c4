"""Splits: deterministic, disjoint by text, and never without something to train on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.splits import normalized, split_counts, split_queries


def texts(n: int) -> list[str]:
    return [f"What is {i} + {i * 7}?" for i in range(n)]


def test_split_holds_out_20_percent_and_selects_with_a_quarter_of_the_rest() -> None:
    split = split_queries(texts(200), seed=3)
    assert (len(split.train), len(split.selection), len(split.held_out)) == (120, 40, 40)
    assert split_counts(200) == (120, 40, 40)


@pytest.mark.parametrize(("n", "selects"), [(150, 30), (100, 20), (80, 20), (60, 19), (30, 9), (10, 3), (3, 1)])
def test_a_small_dataset_gives_more_than_its_share_to_the_gate(n: int, selects: int) -> None:
    """20 queries where they are to be had, and never more than 40 % of what is not held out."""
    train, selection, held_out = split_counts(n)
    assert selection == selects and train + selection + held_out == n and train > 0


def test_the_side_of_a_query_hangs_on_its_text_and_the_seed_and_not_on_the_order() -> None:
    queries = texts(100)
    shuffled = random.Random(0).sample(queries, 100)
    one, other = split_queries(queries, seed=5), split_queries(shuffled, seed=5)
    assert {queries[i] for i in one.held_out} == {shuffled[i] for i in other.held_out}
    assert {queries[i] for i in one.selection} == {shuffled[i] for i in other.selection}
    assert split_queries(queries, seed=6) != one


@given(st.lists(st.sampled_from(["a", "A ", "b", " b", "c", "d  e", "D E", "f", "g", "h"]), min_size=1), st.integers())
def test_no_text_is_on_two_sides_and_every_row_on_one(queries: list[str], seed: int) -> None:
    split = split_queries(queries, seed)
    sides = [{normalized(queries[i]) for i in side} for side in (split.train, split.selection, split.held_out)]
    assert sorted(split.train + split.selection + split.held_out) == list(range(len(queries)))
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])
    assert split.train
    if len(set(map(normalized, queries))) >= 3:
        assert split.selection
        assert split.held_out


def test_a_single_query_trains() -> None:
    assert split_queries(["only"], seed=0).train == [0]


def test_shares_may_be_zero_and_must_make_sense() -> None:
    split = split_queries(texts(50), seed=0, held_out_share=0.0, selection_share=0.0)
    assert len(split.train) == 50
    with pytest.raises(ValueError, match="Shares"):
        split_queries(texts(5), seed=0, held_out_share=1.0)
    with pytest.raises(ValueError, match="no query"):
        split_queries([], seed=0)
