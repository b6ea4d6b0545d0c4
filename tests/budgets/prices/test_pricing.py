"""Prices: exact, rounded up, and the worst case is one."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.pricing import Price, UnknownPrice, Usage, cost_micros, worst_case_micros

COUNTS = st.integers(0, 10**7)
PRICES = st.integers(0, 10**9)


def test_pricing_prices_a_call_in_micro_dollars() -> None:
    price = Price("large", input_micros=2_500_000, output_micros=10_000_000, cached_input_micros=1_250_000)
    usage = Usage(input_tokens=1_000, output_tokens=200, cached_tokens=400)
    # 600 × $2.50/M + 400 × $1.25/M + 200 × $10/M = $0.0015 + $0.0005 + $0.0020
    assert cost_micros(price, usage) == 4_000


def test_pricing_rounds_a_fraction_of_a_micro_dollar_up_once_for_the_whole_call() -> None:
    price = Price("tiny", input_micros=100_000, output_micros=100_000)
    assert cost_micros(price, Usage(1, 1)) == 1
    assert cost_micros(price, Usage(10, 0)) == 1
    assert cost_micros(price, Usage(10, 1)) == 2
    assert cost_micros(price, Usage(0, 0)) == 0


def test_pricing_prices_cached_tokens_as_input_where_there_is_no_price_for_them() -> None:
    assert cost_micros(Price("m", 1_000_000, 0), Usage(100, 0, cached_tokens=100)) == 100
    assert cost_micros(Price("m", 1_000_000, 0, cached_input_micros=0), Usage(100, 0, cached_tokens=100)) == 0


def test_pricing_counts_no_more_cached_tokens_than_there_are_prompt_tokens() -> None:
    price = Price("m", 2_000_000, 0, cached_input_micros=1_000_000)
    assert cost_micros(price, Usage(10, 0, cached_tokens=1_000)) == 10


def test_pricing_adds_the_surcharge_of_a_call() -> None:
    assert cost_micros(Price("m", 0, 0, per_call_micros=30), Usage(10, 10)) == 30


def test_pricing_knows_what_is_free() -> None:
    assert Price("m", 0, 0).free
    assert not Price("m", 0, 0, cached_input_micros=1).free
    assert not Price("m", 0, 0, per_call_micros=1).free


@pytest.mark.parametrize("field", ["input_micros", "output_micros", "cached_input_micros", "per_call_micros"])
def test_pricing_refuses_a_negative_price(field: str) -> None:
    with pytest.raises(ValueError, match="negative"):
        Price(**{"model": "m", "input_micros": 1, "output_micros": 1, field: -1})


def test_pricing_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="negative"):
        Usage(1, -1)


@given(
    price=st.builds(Price, st.just("m"), PRICES, PRICES, st.none() | PRICES, PRICES),
    prompt=COUNTS,
    most=COUNTS,
    parts=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
)
def test_no_usage_within_the_bounds_costs_more_than_the_worst_case(price, prompt, most, parts) -> None:
    used = int(prompt * parts[0])
    usage = Usage(used, int(most * parts[1]), cached_tokens=int(used * parts[2]))
    assert cost_micros(price, usage) <= worst_case_micros(price, prompt_tokens=prompt, max_tokens=most)


def test_the_worst_case_takes_the_dearer_input_price() -> None:
    price = Price("m", 1_000_000, 0, cached_input_micros=1_250_000)
    assert worst_case_micros(price, prompt_tokens=1_000_000, max_tokens=0) == 1_250_000


def test_an_unknown_price_says_what_to_do_and_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(UnknownPrice("mystery")))
    assert error.model == "mystery"
    assert "mystery" in str(error) and "declare the model free" in str(error)
