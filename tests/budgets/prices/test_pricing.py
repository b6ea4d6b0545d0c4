"""Prices: exact, rounded up, and the worst case is one."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.pricing import KINDS, Price, Tier, TokenRates, UnknownPrice, Usage, cost_micros, worst_case_micros

COUNTS = st.integers(0, 10**7)
PRICES = st.integers(0, 10**9)
RATES = st.builds(TokenRates, **{kind: st.none() | PRICES for kind in KINDS})
TIERS = st.builds(Tier, COUNTS, PRICES, PRICES, RATES)


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
    price=st.builds(
        Price, st.just("m"), PRICES, PRICES, st.none() | PRICES, PRICES, RATES, st.lists(TIERS, max_size=3).map(tuple)
    ),
    prompt=COUNTS,
    most=COUNTS,
    parts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    others=st.lists(COUNTS, min_size=8, max_size=8),
)
def test_no_usage_within_the_bounds_costs_more_than_the_worst_case(price, prompt, most, parts, others) -> None:
    usage = Usage(int(prompt * parts[0]), int(most * parts[1]), *others[:2], False, *others[2:])
    assert cost_micros(price, usage) <= worst_case_micros(price, prompt_tokens=prompt, max_tokens=most)


def test_the_worst_case_takes_the_dearer_input_price() -> None:
    price = Price("m", 1_000_000, 0, cached_input_micros=1_250_000)
    assert worst_case_micros(price, prompt_tokens=1_000_000, max_tokens=0) == 1_250_000


def test_an_unknown_price_says_what_to_do_and_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(UnknownPrice("mystery")))
    assert error.model == "mystery"
    assert "mystery" in str(error) and "declare the model free" in str(error)


LONG = Price(
    "long",
    1_000_000,
    10_000_000,
    100_000,
    rates=TokenRates(cache_write_micros=1_250_000, cache_write_1h_micros=2_000_000, audio_output_micros=40_000_000),
    tiers=(Tier(200_000, 2_000_000, 15_000_000, TokenRates(cached_input_micros=200_000)),),
)


def test_a_call_is_settled_by_the_tier_of_its_prompt_and_held_by_the_highest_it_can_reach() -> None:
    assert cost_micros(LONG, Usage(200_000, 100)) == 200_000 + 1_000
    assert cost_micros(LONG, Usage(200_001, 100)) == 400_002 + 1_500
    assert cost_micros(LONG, Usage(300_000, 0, cached_tokens=300_000)) == 60_000
    assert worst_case_micros(LONG, prompt_tokens=200_000, max_tokens=0) == 400_000  # all written to the cache
    assert worst_case_micros(LONG, prompt_tokens=200_001, max_tokens=100) == 400_002 + 4_000  # and audio, of the base


def test_cache_writes_and_audio_have_their_prices() -> None:
    usage = Usage(10_000, 100, cache_write_tokens=9_000, cache_write_1h_tokens=1_000, audio_output_tokens=40)
    assert cost_micros(LONG, usage) == 1_000 + 8_000 * 1.25 + 1_000 * 2 + 60 * 10 + 40 * 40
    assert cost_micros(Price("m", 1_000_000, 0), Usage(10, 0, cache_write_tokens=10)) == 10  # no price: as the prompt


def test_usage_of_several_calls_is_their_sum() -> None:
    one = Usage(5, 4, 3, 2, False, 1, 1, 1, 1, 1, 1)
    assert one + Usage(5, 4, estimated=True) == Usage(10, 8, 3, 2, True, 1, 1, 1, 1, 1, 1)
