"""Usage as providers report it: tokens and costs by each of their names."""

from __future__ import annotations

from typing import Any

import pytest

from budgets.llm.types import ReportedUsage
from budgets.llm.usage import read_usage, usage_in
from budgets.pricing import Price, TokenRates, cost_micros

PLAIN: dict[str, Any] = {"prompt_tokens": 10_000, "completion_tokens": 10, "total_tokens": 10_010}


@pytest.mark.parametrize(
    "usage",
    [
        PLAIN | {"cached_tokens": 9_000},
        PLAIN | {"prompt_cache_hit_tokens": 9_000, "prompt_cache_miss_tokens": 1_000},
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 9_000}},
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 0}, "cache_read_input_tokens": 9_000},
        PLAIN | {"num_cached_tokens": 9_000},
        {"input_tokens": 10_000, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 9_000}},
        {"input_tokens": 1_000, "output_tokens": 10, "cache_read_input_tokens": 9_000},
        {"promptTokenCount": 10_000, "candidatesTokenCount": 10, "cachedContentTokenCount": 9_000},
        {"inputTokens": 1_000, "outputTokens": 10, "cacheReadInputTokenCount": 9_000},
        {"billed_units": {"input_tokens": 10_000, "output_tokens": 10}, "tokens": {"input_tokens": 12_000}}
        | {"cached_tokens": 9_000},
    ],
)
def test_cached_tokens_are_read_wherever_they_are_reported(usage: dict[str, Any]) -> None:
    assert read_usage(usage, []) == ReportedUsage(10_000, 10, cached_tokens=9_000)


@pytest.mark.parametrize(
    ("usage", "hour"),
    [
        (PLAIN | {"cache_creation_input_tokens": 9_000, "cache_read_input_tokens": 0}, 0),
        (PLAIN | {"prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 9_000}}, 0),
        (PLAIN | {"prompt_tokens_details": {"cache_write_tokens": 9_000}}, 0),
        (PLAIN | {"cache_creation": {"ephemeral_5m_input_tokens": 5_000, "ephemeral_1h_input_tokens": 4_000}}, 4_000),
        (
            PLAIN
            | {
                "prompt_tokens_details": {
                    "cache_creation_tokens": 9_000,
                    "cache_creation_token_details": {"ephemeral_1h_input_tokens": 4_000},
                }
            },
            4_000,
        ),
        ({"input_tokens": 1_000, "output_tokens": 10, "cache_creation_input_tokens": 9_000}, 0),
        ({"inputTokens": 10_000, "outputTokens": 10, "cacheWriteInputTokens": 9_000}, 0),
    ],
)
def test_tokens_written_to_the_cache_cost_their_price(usage: dict[str, Any], hour: int) -> None:
    reported = read_usage(usage, [])
    assert (reported.cache_write_tokens, reported.cache_write_1h_tokens, reported.input_tokens) == (9_000, hour, 10_000)
    price = Price("m", 1_000_000, 0, rates=TokenRates(cache_write_micros=1_250_000, cache_write_1h_micros=2_000_000))
    assert cost_micros(price, reported.tokens(10_000, 10)) == 1_000 + (9_000 - hour) * 1.25 + hour * 2


@pytest.mark.parametrize(
    ("reported", "micros"),
    [
        ({"cost": 0.5}, 500_000),
        ({"cost": {"total_cost": 0.5, "request_cost": 0.1}}, 500_000),
        ({"total_cost": "0.5"}, 500_000),
        ({"estimated_cost": 0.5}, 500_000),
        ({"cost_in_usd_ticks": 5_000_000_000}, 500_000),
        ({"cost": {"total_cost": -1}}, None),
        ({"cost": {}}, None),
        ({"cost": 1e9}, None),
    ],
)
def test_cost_is_read_wherever_it_is_reported(reported: dict[str, Any], micros: int | None) -> None:
    assert read_usage(PLAIN | reported, []).cost_micros == micros


def test_audio_and_image_tokens_are_parts_of_the_prompt_and_the_answer() -> None:
    details = {
        "prompt_tokens_details": {"audio_tokens": 7, "image_tokens": 3},
        "completion_tokens_details": {"audio_tokens": 5, "image_tokens": 99, "reasoning_tokens": 2},
    }
    found = read_usage(PLAIN | details, [])
    assert (found.audio_input_tokens, found.image_input_tokens, found.reasoning_tokens) == (7, 3, 2)
    assert (found.audio_output_tokens, found.image_output_tokens) == (5, 10)


@pytest.mark.parametrize("odd", [-1, "x", True, None, [], {}, 1e30, float("nan")])
@pytest.mark.parametrize("name", ["cached_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cost"])
def test_odd_values_are_left_out_and_raise_nothing(name: str, odd: Any) -> None:
    found = read_usage(PLAIN | {name: odd, "cache_creation": odd, "prompt_tokens_details": odd}, [])
    assert found == ReportedUsage(10_000, 10)


@pytest.mark.parametrize(
    ("usage", "prompt", "output"),
    [
        ({"prompt_tokens": 10, "total_tokens": 510}, 10, 500),  # Gemini, where thoughts took all of the answer
        ({"prompt_tokens": 10, "completion_tokens": None, "total_tokens": 510}, 10, 500),
        ({"completion_tokens": 500, "total_tokens": 510}, 10, 500),
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 510}, 10, 500),
        (
            {"prompt_tokens": 10, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 480}},
            10,
            500,
        ),
        ({"prompt_tokens": 10, "completion_tokens": 20, "reasoning_tokens": 480}, 10, 500),
        ({"prompt_tokens": 10, "total_tokens": 10}, 10, None),
        ({"total_tokens": 510}, None, None),
        ({"prompt_eval_count": 10, "eval_count": 500}, 10, 500),
    ],
)
def test_what_a_report_leaves_out_follows_from_the_rest(usage: dict[str, Any], prompt: int, output: int) -> None:
    found = read_usage(usage, [])
    assert (found.input_tokens, found.output_tokens) == (prompt, output)


def test_thoughts_beyond_an_answer_whose_total_is_reported_are_no_more_tokens() -> None:
    found = read_usage(PLAIN | {"completion_tokens_details": {"reasoning_tokens": 99}}, [])
    assert (found.output_tokens, found.reasoning_tokens) == (10, 10)


def test_a_cache_that_is_more_than_the_prompt_lies_beside_it() -> None:
    """Proxies that write Anthropic's counts under OpenAI's names."""
    found = read_usage(
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9_000}}, []
    )
    assert (found.input_tokens, found.cached_tokens) == (9_010, 9_000)


@pytest.mark.parametrize("name", ["usageMetadata", "usage_metadata"])
def test_usage_is_found_under_geminis_own_name(name: str) -> None:
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 85, "totalTokenCount": 100}
    found = read_usage(usage_in({"choices": [], name: counts}), [])
    assert (found.input_tokens, found.output_tokens, found.reasoning_tokens) == (10, 90, 85)
    assert usage_in({"choices": [], "prompt_eval_count": 3, "eval_count": 4}) == {
        "prompt_eval_count": 3,
        "eval_count": 4,
    }
