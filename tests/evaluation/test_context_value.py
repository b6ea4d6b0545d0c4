"""Cost and gain of a learned context: the arithmetic, and the sentence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from evaluation.context_value import context_value, context_words


def value(**changes: float) -> Any:
    figures = {"success_without": 0.5, "success_with": 0.8, "cost_without": 0.01, "cost_with": 0.012}
    return context_value(**{**figures, "learning_cost": 2.0, **changes})


def words(found: Any, **changes: Any) -> str:
    sure = {"lessons": 9, "tokens": 210, "improvement": 0.3, "low": 0.15, "high": 0.39, "p_value": 0.0003}
    return context_words({**asdict(found), **sure, **changes})


def test_a_call_saves_the_cost_of_as_many_successes_without_the_context() -> None:
    result = value()
    assert result.saving == pytest.approx(0.8 * 0.01 / 0.5 - 0.012)  # $0.004
    assert (result.pays_off, result.calls) == ("after", 500)
    assert result.extra_cost == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("changes", "pays_off", "calls"),
    [
        ({"success_with": 0.5}, "never", None),  # no better, and dearer
        ({"success_with": 0.6}, "never", None),  # a success costs the same
        ({"success_with": 0.5, "cost_with": 0.008}, "after", 1000),  # no better, but cheaper
        ({"success_without": 0.0}, "unknown", None),
        ({"cost_without": 0.0, "cost_with": 0.0}, "unknown", None),
        ({"learning_cost": 0.0}, "after", 0),
        ({"learning_cost": 2.001}, "after", 501),
    ],
)
def test_sentence_says_after_how_many_calls_or_why_not(
    changes: dict[str, float], pays_off: str, calls: int | None
) -> None:
    result = value(**changes)
    assert (result.pays_off, result.calls) == (pays_off, calls)
    assert (result.saving is None) == (pays_off == "unknown")


def test_the_sentence_says_tokens_rates_certainty_and_money() -> None:
    assert words(value()) == (
        "Learned context: 210 tokens per call; with it 80.0 % succeed, without 50.0 % (paired: +30.0 points, 95 % "
        "interval +15.0 to +39.0, p\u00a0<\u00a0.001); it costs $0.002 more per call and pays for itself after 500 "
        "calls (learning cost $2.00)."
    )
    assert "never pays for itself, at these prices (learning cost $2.00)" in words(value(success_with=0.5))
    assert "is unknown: nothing succeeds without it" in words(value(success_without=0.0))
    assert "is unknown: calls cost nothing" in words(value(cost_without=0.0, cost_with=0.0))
    assert "it costs $0.002 less per call" in words(value(cost_with=0.008))
    assert words(value(), lessons=0).startswith("Nothing was added: no lesson")
    assert "p\u00a0=\u00a0.031" in words(value(), p_value=0.031)


def test_a_second_run_is_compared_with_its_starting_context_and_says_so() -> None:
    began = "what the run began with (12 lessons and 3 sections of the playbook)"
    text = words(value(), baseline=began)
    assert text.startswith(
        f"Learned context: 210 tokens per call were added; with it 80.0 % succeed, with {began} 50.0 %"
    )
    assert "without" not in text and "untrained" not in text
    assert words(value(), baseline=began, lessons=0).startswith(f"Nothing was added to {began}: ")
