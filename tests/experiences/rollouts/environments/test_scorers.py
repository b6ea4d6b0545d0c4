"""Scorers of a row: the check that it asks for, the answers that pass, and rows that can't be checked."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from experiences.rollouts.environments.number_reading import reading_of
from experiences.rollouts.environments.scorers import (
    MAX_ANSWER,
    MAX_MATCHED,
    MAX_RUBRIC,
    SAME_AS_REFERENCE,
    SCORERS,
    Rubric,
    check_for,
    reference_in,
    rubric_for,
)
from experiences.rollouts.types import Outcome


@pytest.mark.parametrize(
    ("expected", "scorer"),
    [
        ({"answer": "four"}, "exact"),
        ({"answer": True}, "exact"),
        ({"answer": 4}, "math"),
        ({"answer": [4, "\\frac{1}{2}"]}, "math"),
        ({"answer": "x^2 + 1"}, "math"),
        ({"answer": "4"}, "exact"),
        ({"answer": 4.5, "tolerance": 0.1}, "numeric"),
        ({"answer": 4, "contains": "4"}, "contains"),
        ({"contains": "4", "regex": "4"}, "regex"),
        ({"regex": "4", "json_schema": {"type": "number"}}, "json_schema"),
        ({"json_schema": {"type": "number"}, "judge": "Ten for 4."}, "judge"),
    ],
)
def test_the_scorer_goes_by_the_keys_of_the_row(expected: dict[str, Any], scorer: str) -> None:
    assert check_for(expected)("4").evidence["scorer"] == scorer
    assert set(SCORERS) == {"exact", "math", "numeric", "contains", "regex", "json_schema", "judge"}


@pytest.mark.parametrize(
    ("scorer", "expected", "right", "wrong"),
    [
        ("exact", {"answer": "Four  apples"}, ["four\napples ", "FOUR APPLES", "four apples."], ["four", "four pears"]),
        ("exact", {"answer": ["a", 2]}, ["A", "2"], ["a 2", ""]),
        (
            "numeric",
            {"answer": 4},
            ["4", "it is 3 + 1 = 4.", "4.0", "400%", "four", "there are four"],
            ["5", "4 or 5", "5 or 4", "4%", "4!", "forty", "the fourth", ""],
        ),
        ("numeric", {"answer": "1,200.5", "tolerance": 0.5}, ["1201", "1,200", "1200.5"], ["1201.01", "1199.9"]),
        ("numeric", {"answer": 1e9}, ["1000000000.0000001"], ["1000000000.5", "1000000001"]),
        ("contains", {"contains": ["red", "Green"]}, ["green and red", "RED, GREEN"], ["green", "red"]),
        ("contains", {"answer": 4}, ["he has 4"], ["he has four", "he has 14", "he has 4.5"]),
        ("regex", {"regex": "^4 a"}, ["4 apples", "4 Apes"], ["14 apples"]),
        ("regex", {"answer": "b$"}, ["ab"], ["ba"]),
        ("json_schema", {"json_schema": {"type": "array"}}, ["[1]", "[] ", "[1, 2,]"], ["{}", "[1", "", "[" * 100_000]),
    ],
)
def test_an_answer_passes_or_fails_with_the_evidence(
    scorer: str, expected: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    check = check_for(expected, scorer)
    target: Any = next(expected[name] for name in (scorer, "answer") if name in expected)
    target = float(str(target).replace(",", "")) if scorer == "numeric" else target  # 4.0 is 4
    for answers, success in ((right, True), (wrong, False)):
        for answer in answers:
            result = check(answer)
            assert (result.score, result.success) == (float(success), success), answer
            assert result.evidence["scorer"] == scorer and result.evidence["expected"] == target
            assert answer.startswith(result.evidence["answer"]) and len(result.evidence["answer"]) <= MAX_MATCHED


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [("exact", {"answer": "Four"}), ("contains", {"contains": "Four"}), ("regex", {"regex": "Four"})],
)
def test_case_counts_where_the_row_requires_case(scorer: str, expected: dict[str, Any]) -> None:
    assert check_for(expected, scorer)("four").success
    strict = check_for(expected, scorer, case_sensitive=True)
    assert strict("Four").success and not strict("four").success
    assert check_for({"answer": "e\u0301"})("\u00c9").success  # one letter, however it is composed


def test_only_the_first_part_of_a_long_answer_is_looked_at() -> None:
    assert (MAX_ANSWER, MAX_MATCHED) == (100_000, 10_000)
    for length, found in ((MAX_ANSWER, True), (MAX_ANSWER + 1, False)):
        long = "x" * (length - 2) + " 4"
        assert check_for({"contains": "4"})(long).success is found
        assert (_number("7" + long[1:]) == 4) is found
        assert check_for({"json_schema": {}})(f'"{"x" * (length - 2)}"').success is found
    for length, found in ((MAX_MATCHED, True), (MAX_MATCHED + 1, False)):
        assert check_for({"regex": "4"})("x" * (length - 1) + "4").success is found


@pytest.mark.parametrize(
    ("text", "number"),
    [("", None), ("none", None), ("1 of 2", 2), ("-3", -3), ("+3", 3), ("1,234.5", 1234.5), (".5", 0.5), ("12%", 12),
     ("2e3", 2000), ("2E-3", Fraction(1, 500)), ("7.", 7), ("3 + 1 = 4", 4), ("2^7", 128), ("−5", -5)],
)  # fmt: skip
def test_the_last_number_of_a_text_is_read(text: str, number: float | Fraction | None) -> None:
    assert _number(text) == number


def _number(text: str) -> Fraction | None:
    found = reading_of(text)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("expected", "scorer", "message"),
    [
        ({}, "auto", "there is nothing to check against: expected_outcome needs 'answer'."),
        ({"answer": ""}, "exact", "there is nothing to check against: expected_outcome needs 'answer'."),
        ({"answer": []}, "exact", "there is nothing to check against: expected_outcome needs 'answer'."),
        ({"contains": ""}, "contains", "there is nothing to check against: expected_outcome needs 'contains' or 'answer'."),  # noqa: E501
        ({}, "regex", "there is nothing to check against: expected_outcome needs 'regex' or 'answer'."),
        ({"answer": "1"}, "json_schema", "there is nothing to check against: expected_outcome needs 'json_schema'."),
        ({"contains": 1}, "judge", "there is nothing to check against: expected_outcome needs 'judge' or 'answer'."),
        ({"answer": "x", "correct": False}, "auto", "its answer is marked correct: false; give the right answer."),
        ({"answer": "x"}, "numeric", "its answer 'x' is not a number."),
        ({"answer": 1, "tolerance": -1}, "numeric", "its tolerance -1 is not a number from 0."),
        ({"answer": 1, "tolerance": True}, "numeric", "its tolerance True is not a number from 0."),
        ({"answer": 1, "tolerance": "1"}, "numeric", "its tolerance '1' is not a number from 0."),
        ({"judge": 7}, "judge", "its rubric must be text of at most 10,000 characters; got '7'."),
        ({"judge": "x" * 10_001}, "auto", f"its rubric must be text of at most 10,000 characters; got '{'x' * 60}'."),
    ],
)  # fmt: skip
def test_a_row_that_can_not_be_checked_is_refused_with_what_to_do(
    expected: dict[str, Any], scorer: str, message: str
) -> None:
    with pytest.raises(ValueError) as refused:
        check_for(expected, scorer)
    assert str(refused.value) == message


def test_a_row_that_is_marked_correct_is_checked() -> None:
    assert check_for({"answer": 4, "correct": True, "tolerance": 0})("4").success


@pytest.mark.parametrize(
    ("expected", "scorer", "rubric"),
    [
        ({"answer": "x"}, "auto", None),
        ({"answer": "x", "judge": "Ten."}, "exact", None),
        ({"answer": "x", "judge": "Ten."}, "auto", Rubric("Ten.", "x")),
        ({"judge": "Ten."}, "judge", Rubric("Ten.")),
        ({"answer": ["x", 2]}, "judge", Rubric(SAME_AS_REFERENCE, "x | 2")),
        ({"judge": "x" * MAX_RUBRIC}, "auto", Rubric("x" * MAX_RUBRIC)),
    ],
)
def test_a_judge_gets_the_rubric_of_the_row_or_compares_with_its_answer(
    expected: dict[str, Any], scorer: str, rubric: Rubric | None
) -> None:
    assert rubric_for(expected, scorer) == rubric
    if rubric is not None:
        fixed = (rubric.threshold, rubric.calls, rubric.model, rubric.shows_reference)
        assert fixed == (0.7, 1, "", True)
        shown = rubric.reference or rubric.text
        assert check_for(expected, "judge")("a" * 10_001) == Outcome(
            0.0,
            False,
            {"scorer": "judge", "answer": "a" * 10_000, "expected": shown,
             "judge_error": "no language model was there to judge it"},
        )  # fmt: skip
    assert reference_in({"answer": 0}) == "0" and reference_in({"judge": "Ten."}) == ""


@pytest.mark.parametrize(
    "text",
    [
        '```JSON\n{"a": 1}```', '```json {"a": 1}```', '\ufeff{"a": 1}', '{"a": 1}.', 'json\n{"a": 1}',
        '<answer>{"a": 1}</answer>', '<analysis>{"a": "x"}</analysis>{"a": 1}',
        '<|START_THINKING|>{"a": "x"}<|END_THINKING|><|START_RESPONSE|>{"a": 1}<|END_RESPONSE|>',
    ],
)  # fmt: skip
def test_json_fits_its_schema_with_marks_around_it(text: str) -> None:
    check = check_for({"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}})
    assert check(text).success
    assert not check(text.replace("1", '"1"')).success


def test_an_answer_between_tags_is_the_answer() -> None:
    check = check_for({"answer": "Paris"})
    assert check("<think>London</think> It is <answer>\nParis\n</answer>").success
    assert check("<answer>London</answer> No: <answer>Paris.</answer>").success
    assert not check("<answer>London</answer> Paris").success


def test_a_piece_of_text_that_every_answer_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="one of its pieces of text is empty"):
        check_for({"contains": ["a", ""]})
