"""The dataset environment: rows of one's own, each judged by what it expects."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from experiences.rollouts.environments import environments
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.rewards import signals
from experiences.rollouts.types import reindexed


def judged(expected: Any, answer: str, **options: Any) -> bool:
    environment = dataset_environment([{"query": "q", "expected_outcome": expected}], options)
    [scenario] = environment.scenarios("all", 1, 0)
    return environment.world.score(answer, scenario).success


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ({"answer": "Paris", "correct": True}, "  paris ", "Paris, France"),
        ({"answer": ["Paris", "Lutetia"]}, "LUTETIA", "Rome"),
        ("Paris", "Paris", "Rome"),
        ({"answer": 3.5}, "It is 3.50", "It is 3.51"),
        ({"answer": 12000}, "about 12,000", "12"),
        ({"answer": 3.14159, "tolerance": 0.01}, "3.14", "3.2"),
        ({"answer": 0}, "0", "1"),
        ({"contains": "blue"}, "The sky is Blue.", "The sky is grey."),
        ({"contains": ["blue", "sky"]}, "Blue is the sky.", "Blue is the sea."),
        ({"regex": r"\b\d{4}-\d{2}-\d{2}\b"}, "on 2026-11-21, I think", "on 21 November"),
        (
            {"json_schema": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}},
            '{"city": "Paris"}',
            '{"city": 5}',
        ),
        ({"json_schema": {"type": "integer"}}, "5", "not JSON"),
    ],
)
def test_environment_judges_by_what_the_row_expects(expected: Any, right: str, wrong: str) -> None:
    assert judged(expected, right)
    assert not judged(expected, wrong)


def test_environment_judges_by_the_scorer_that_is_asked_for() -> None:
    row = {"answer": "4 apples"}
    assert judged(row, "there are 4", scorer="numeric") and not judged(row, "there are 4")
    assert judged(row, "he has 4 apples.", scorer="contains")
    assert judged({"answer": "^4 a"}, "4 apples", scorer="regex")
    assert judged({"answer": "Paris"}, "paris") and not judged({"answer": "Paris"}, "paris", case_sensitive=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "q"}, "Row 2: there is nothing to check against: expected_outcome needs 'answer'"),
        ({"query": "q", "expected_outcome": {}}, "Row 2: there is nothing to check against"),
        ({"query": "q", "expected_outcome": {"correct": True}}, "Row 2: there is nothing to check against"),
        ({"query": "q", "expected_outcome": {"answer": ""}}, "Row 2: there is nothing to check against"),
        ({"query": "q", "expected_outcome": {"answer": "x", "correct": False}}, "Row 2: its answer is marked"),
        ({"query": "q", "expected_outcome": {"regex": "("}}, "Row 2: its regular expression is faulty"),
        ({"query": "q", "expected_outcome": {"regex": "x" * 2000}}, "longer than 1,000 characters"),
        ({"query": "q", "expected_outcome": {"json_schema": {"type": 5}}}, "Row 2: its JSON schema is faulty"),
        ({"query": "q", "expected_outcome": {"json_schema": {"$ref": "http://x/y"}}}, "refers to another document"),
        ({"query": "q", "expected_outcome": {"json_schema": {"$ref": "#"}}}, "in a circle"),
        ({"query": "q", "expected_outcome": {"json_schema": {"$ref": "#/nope"}}}, "which is not in it"),
        ({"query": "q", "expected_outcome": {"json_schema": {"$dynamicRef": "#nope"}}}, "which is not in it"),
        (
            {
                "query": "q",
                "expected_outcome": {
                    "json_schema": {
                        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}},
                        "$ref": "#/$defs/a",
                    }
                },
            },
            "in a circle",
        ),
        ({"query": "q", "expected_outcome": {"json_schema": {"not": {"$id": "http://x/y"}}}}, "has \\$id inside"),
        ({"query": "q", "expected_outcome": {"regex": "(?:cat){e<=9}"}}, "engines read differently"),
        ({"query": "q", "expected_outcome": {"regex": "(?:cat){i,2d+1s<=4:[a-z]}"}}, "engines read differently"),
        ({"query": "q", "expected_outcome": {"regex": "[[:alpha:]]+"}}, "engines read differently"),
        (
            {"query": "q", "expected_outcome": {"json_schema": {"patternProperties": {"a{e}": True}}}},
            "engines read differently",
        ),
        ({"query": "q", "expected_outcome": {"answer": 3, "tolerance": "big"}}, "tolerance 'big' is not a number"),
        ({"query": "  ", "expected_outcome": {"answer": "x"}}, "Row 2 has no query"),
    ],
)
def test_environment_names_the_row_that_is_wrong(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset_environment([{"query": "fine", "expected_outcome": {"answer": "x"}}, row], {})


def test_environment_says_when_an_answer_that_must_be_a_number_is_none() -> None:
    with pytest.raises(ValueError, match="Row 1: its answer 'many' is not a number"):
        judged({"answer": "many"}, "5", scorer="numeric")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": "vibes"}, "scorer must be one of auto, exact"),
        ({"judge": 1}, "has no option 'judge'"),
        ({"case_sensitive": 1}, "case_sensitive must be true or false"),
    ],
)
def test_environment_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset_environment([], options)


async def test_a_rows_metadata_names_its_type_of_task() -> None:
    rows = [
        {"query": "q", "expected_outcome": {"answer": 4}, "metadata": {"task_type": "sums"}},
        {"query": "r", "expected_outcome": {"answer": 4}, "metadata": {"task_type": 7}},
    ]
    environment = dataset_environment(rows, {})
    types = []
    for scenario in environment.rows:
        episode = environment.start(scenario, np.random.default_rng(0))
        unanswered = episode.outcome().evidence
        await episode.say("4")
        outcome = episode.outcome()
        assert outcome.success and unanswered.get("task_type") == outcome.evidence.get("task_type")
        types.append(signals.task_type(outcome.evidence))
    assert types == ["sums", "math"]


def test_environment_gives_all_rows_in_order_and_leaves_splitting_to_others() -> None:
    rows = [{"query": f"q{i}", "expected_outcome": {"answer": i}, "metadata": {"n": i}} for i in range(5)]
    environment = dataset_environment(rows, {})
    scenarios = environment.scenarios("all", 5, 1)
    assert [(s.index, s.query, s.metadata["n"]) for s in scenarios] == [(i, f"q{i}", i) for i in range(5)]
    assert [environment.world.score("3", s).success for s in reindexed(scenarios[3:])] == [True, False]
    with pytest.raises(ValueError, match="ask for 'all'"):
        environment.scenarios("train", 2, 1)
    with pytest.raises(ValueError, match="has 5 rows; 6 were asked for"):
        environment.scenarios("all", 6, 1)


async def test_environment_is_played_with_the_same_tools_and_rules_as_the_embedded_environment() -> None:
    environment = environments.get("dataset")(
        {"rows": [{"query": "What is 6 * 7?", "expected_outcome": {"answer": 42}}], "tools": ["int_calc", "gcd"]}
    )
    assert [action.name for action in environment.actions] == ["int_calc", "gcd", "verify", "answer"]
    [scenario] = environment.scenarios("all", 1, 0)
    episode = environment.start(scenario, np.random.default_rng(0))
    for choice in (0, 2, 3):
        await episode.step(choice)
    assert episode.outcome().success
    assert episode.outcome().evidence == {"scorer": "math", "answer": "42", "expected": 42}


def test_environment_can_check_its_options_before_there_are_rows() -> None:
    assert environments.get("dataset")({"scorer": "exact"}).actions
    with pytest.raises(ValueError, match="scorer must be"):
        environments.get("dataset")({"scorer": "none"})


def test_the_time_of_ten_thousand_rows_grows_as_their_number_does() -> None:
    def processor(n: int) -> float:
        rows = [{"query": f"question {i}", "expected_outcome": {"answer": f"answer {i}"}} for i in range(n)]
        began = time.process_time()
        dataset_environment(rows, {})
        return time.process_time() - began

    assert processor(10_000) < 30 * min(processor(1_000) for _ in range(3))  # 100 times, were it the square
