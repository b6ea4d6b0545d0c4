"""Patterns and schemas of rows on hostile answers: each check ends in time and says what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.types import Outcome
from tests.support.pace import millions


def judged(expected: dict[str, Any], answer: str) -> Outcome:
    environment = dataset_environment([{"query": "q", "expected_outcome": expected}], {})
    return environment.world.score(answer, environment.rows[0])


DEEP: dict[str, Any] = {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}, "type": "array"}


@pytest.mark.parametrize("pattern", [r"^(\w+\s?)*$", r"(a+)+$", r"(a|aa)+$", r"(?=(a+)+$)x", r"(a|b|ab)*c$"])
@pytest.mark.parametrize("length", [28, 9_000])
@pytest.mark.parametrize("place", ["regex", "pattern", "patternProperties", "additionalProperties"])
def test_no_pattern_holds_up_a_worker(pattern: str, length: int, place: str) -> None:
    text = "a" * length + "!"
    by_name = {"patternProperties": {pattern: {"type": "null"}}, "additionalProperties": False}
    expected: dict[str, Any] = {
        "regex": {"regex": pattern},
        "pattern": {"json_schema": {"pattern": pattern}},
        "patternProperties": {"json_schema": {"patternProperties": {pattern: False}, "required": ["x"]}},
        "additionalProperties": {"json_schema": by_name},
    }[place]
    answer = text if place == "regex" else json.dumps(text if place == "pattern" else {text: 1})
    verdicts: list[Any] = []
    assert millions(lambda: verdicts.append(judged(expected, answer))) < 40
    assert not verdicts[0].success


def test_a_check_that_takes_too_long_says_so() -> None:
    verdict = judged({"regex": "(a+)+$"}, "a" * 5_000 + "!")
    assert verdict.evidence["scorer_error"] == "TooSlow: the regular expression takes too long on this answer"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (DEEP, "[" * 30 + "1" + "]" * 30),
        ({"uniqueItems": True, "contains": False}, json.dumps([{"a": n} for n in range(9_000)])),
        ({"items": {"pattern": "(a+)+$"}}, json.dumps(["a" * 40 + "!"] * 2_000)),
    ],
)
def test_no_schema_holds_up_a_worker(schema: dict[str, Any], answer: str) -> None:
    verdicts: list[Any] = []
    assert millions(lambda: verdicts.append(judged({"json_schema": schema}, answer))) < 60
    assert not verdicts[0].success


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"pattern": r"^\d+$"}, '"12"', '"a"'),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, '{"n_a": 1, "b": "x"}', '{"n_a": "x"}'),
        ({"properties": {"a": {}}, "additionalProperties": False}, '{"a": 1}', '{"b": 1}'),
        ({"patternProperties": {"^a": {}}, "additionalProperties": {"type": "null"}}, '{"ab": 1}', '{"b": 1}'),
        ({"uniqueItems": True}, "[1, true, [1], {}]", "[1, 2, 1.0]"),
        ({"uniqueItems": True}, '[{"a": 1}, {"a": 2}]', '[{"a": 1, "b": [0]}, {"b": [0.0], "a": 1}]'),
        ({"unevaluatedProperties": False, "properties": {"a": {}}}, '{"a": 1}', '{"b": 1}'),
        ({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}, "[1, 2]", '["1"]'),
    ],
)
def test_a_schema_has_an_unchanged_meaning(schema: dict[str, Any], right: str, wrong: str) -> None:
    assert judged({"json_schema": schema}, right).success
    assert not judged({"json_schema": schema}, wrong).success


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"items": {"pattern": "("}}, "faulty: "),
        ({"patternProperties": {"(": {}}}, "faulty: "),
        ({"pattern": "x" * 2_000}, "longer than 1,000 characters"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "use one of them"),
    ],
)
def test_a_schema_that_can_not_be_checked_is_refused_when_the_row_is_read(schema: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged({"json_schema": schema}, "1")
