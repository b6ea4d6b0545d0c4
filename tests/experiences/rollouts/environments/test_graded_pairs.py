"""Scorers on pairs of expectation and answer that a person judged once (``graded_pairs.jsonl``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from experiences.rollouts.environments import math_check
from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.environments.safe_regex import TooSlow
from experiences.rollouts.environments.scorers import UNFINISHED, check_for
from experiences.rollouts.thoughts import thoughts_ran_out, without_thoughts

RNG: Final = np.random.default_rng(0)
PAIRS: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for line in Path(__file__).with_name("graded_pairs.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]


@pytest.mark.slow(reason="a process with sympy compares the formulas: 3 s for all pairs")
def test_scorers_judge_as_a_person_does() -> None:
    assert len(PAIRS) >= 850 and len({json.dumps(pair, sort_keys=True) for pair in PAIRS}) == len(PAIRS)
    wrong = [pair for pair in PAIRS if check_for(pair["expected"])(pair["text"]).success is not pair["right"]]
    assert wrong == []


def test_what_is_not_the_number_is_refused_by_each_scorer_that_reads_numbers() -> None:
    """No answer is right by one of them that a person calls wrong; one that "numeric" fails needs a calculation."""
    numbers = [pair for pair in PAIRS if type(pair["expected"].get("answer")) in (int, float)]
    assert len(numbers) >= 500
    for pair in numbers:
        answer = pair["expected"]["answer"]
        for expected, scorer in (({"answer": answer}, "numeric"), ({"answer": str(answer)}, "exact")):
            assert pair["right"] or not check_for(expected, scorer)(pair["text"]).success, (scorer, pair)


@pytest.mark.parametrize("scorer", ["auto", "exact", "numeric"])
def test_a_percent_sign_is_left_out_where_the_question_asks_for_a_percentage(scorer: str) -> None:
    def right(answer: Any, text: str, query: str) -> bool:
        check = check_for({"answer": str(answer) if scorer == "exact" else answer}, scorer, query=query)
        return check(text).success

    for query in ("What percent of them?", "What percentage of it is left?", "Give it as a percentage.", "x (in %)?"):
        assert right(50, "50%", query) and right(50, "50 percent", query) and right(50, "50", query)
        assert right(50, "$50\\%$", query) and not right(50, "0.5", query) and not right(50, "5%", query)
    for query in ("What is 20 percent of 250?", "It costs 20% less. How much is it?", ""):
        assert right(50, "50", query) and not right(50, "50%", query) and right(0.5, "50%", query)
    environment = dataset_environment([{"query": "What percent?", "expected_outcome": {"answer": 50}}], {})
    assert environment.world.scorer("50%", environment.rows[0]).success


def test_units_that_are_known_have_to_be_the_same_where_both_name_one() -> None:
    assert check_for({"answer": "$18"})("18 dollars").success and check_for({"answer": "$18"})("18").success
    for text in ("18 euros", "€18", "18 cents"):
        assert not check_for({"answer": "$18"})(text).success
        assert check_for({"answer": 18})(text).success


@pytest.mark.thorough(reason="it waits until a limit of processor time ends the comparison")
def test_a_comparison_that_takes_too_long_is_ended_and_the_next_one_answers() -> None:
    with pytest.raises(TooSlow):
        math_check.same_formula("1", "1000000!")
    assert math_check.same_formula("\\sqrt{8}", "2\\sqrt{2}")
    assert not math_check.same_formula("x", "x" * (math_check.MAX_FORMULA + 1))


@pytest.mark.slow(reason="a process with sympy compares the formulas")
async def test_episode_compares_formulas_beside_the_event_loop() -> None:
    environment = dataset_environment([{"query": "q", "expected_outcome": {"answer": "\\sqrt{8}"}}], {})
    [scenario] = environment.rows
    assert environment.world.waits_for(scenario)
    episode = environment.world.start(scenario, RNG)
    await episode.say("Answer: $2\\sqrt{2}$")
    assert episode.outcome().success


async def test_thoughts_that_ran_out_are_no_answer_for_any_scorer() -> None:
    for expected in ({"answer": 8}, {"regex": ".*"}, {"json_schema": {}}, {"contains": "8"}, {"answer": "8"}):
        verdict = check_for(expected)("<think>It is 8, I think")
        assert not verdict.success and verdict.evidence["why"] == UNFINISHED
        [row] = dataset_environment([{"query": "q", "expected_outcome": expected}], {}).rows
        episode = dataset_environment([{"query": "q", "expected_outcome": expected}], {}).world.start(row, RNG)
        step = await episode.say("<think>It is 8")
        assert step.done and step.result["error"] == UNFINISHED and episode.outcome().evidence == {"answered": False}


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no tags", "no tags"),
        ("a <think>b</think> c", "a  c"),
        ("<think>a</think>b</think>c", "c"),
        ("say `</think>` aloud", "say `</think>` aloud"),
        ("a <think> b", "a <think> b"),
        ("a\n<think> b", "a"),
        ('<think duration="2">a</think>b', "b"),
        ("<thinkers>a", "<thinkers>a"),
        ("[think]a", "[think]a"),
    ],
)
def test_thoughts_are_taken_off_and_words_are_left(text: str, rest: str) -> None:
    assert without_thoughts(text) == rest
    assert not thoughts_ran_out(text) and thoughts_ran_out(f"<think>{text.replace('/think', '')}")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a \\boxed{1} and $\\boxed{2}$.", "1, 2"),
        ("a \\boxed{\\frac{1}{2}} b", "\\frac{1}{2}"),
        ("\\boxed{1", "1"),
        ("\\boxed 7.", "7"),
        ("```python\nx = 1\n```", "x = 1"),
        ("~~~\na\nb\n~~~", "a\nb"),
        ("```a``` and ```b```", "```a``` and ```b```"),
        ("#### 5\nmore", "#### 5\nmore"),
    ],
)
def test_boxes_and_fences_around_an_answer_are_taken_off(text: str, answer: str) -> None:
    assert answer_in(text) == answer
