"""The question that sorts queries by kind: its name, its numbers, and what is made of an answer."""

from __future__ import annotations

import pytest

from experiences.learning.lessons.kinds import (
    MOST_CHARACTERS,
    MOST_QUERIES,
    Kinds,
    fault,
    labels_by_name,
    labels_in,
    queries_text,
    question_key,
)


def answer(**kinds: list[int]) -> Kinds:
    return Kinds.model_validate({"kinds": [{"kind": name, "queries": found} for name, found in kinds.items()]})


def test_each_query_gets_the_first_kind_that_names_it_and_numbers_out_of_range_none() -> None:
    found = labels_in(answer(Refunds=[1, 2, 0], other=[2, 3, 5, -1]), 4)
    assert found == ("refunds", "refunds", "other", "")
    assert labels_in(answer(a=[MOST_QUERIES, MOST_QUERIES + 1]), 300)[MOST_QUERIES - 1 : MOST_QUERIES + 1] == ("a", "")


@pytest.mark.parametrize(
    ("kinds", "n", "why"),
    [
        ({"a": [1], "b": [2]}, 4, ""),
        ({"a": [1], "b": [9]}, 4, "it sorts 1 of the 4 queries"),
        ({"a": [1, 2, 3, 4]}, 4, "it names fewer than two kinds"),
        ({"A ": [1, 2], "a": [3, 4]}, 4, "it names fewer than two kinds"),
        ({}, 4, "it sorts 0 of the 4 queries"),
        ({"a": list(range(1, 51)), "b": list(range(51, 101))}, 1_000, ""),
        ({"a": list(range(1, 50)), "b": list(range(51, 101))}, 1_000, "it sorts 99 of the 200 queries"),
    ],
)
def test_an_answer_that_sorts_too_few_or_by_nothing_is_of_no_use(kinds: dict[str, list[int]], n: int, why: str) -> None:
    assert fault(answer(**kinds), n) == why


def test_the_question_shows_each_query_once_in_one_line_without_personal_data() -> None:
    shown = queries_text(["How  is\nthe refund?", "x" * 1_000, "Write to eve@example.com."] + ["q"] * MOST_QUERIES)
    lines = shown.splitlines()
    assert lines[0] == "1. How is the refund?" and len(lines[1]) == 3 + MOST_CHARACTERS
    assert "eve@" not in shown and len(lines) == MOST_QUERIES


def test_the_same_queries_have_the_same_question() -> None:
    key = question_key(["a", "b"])
    assert key == question_key(["a", "b"]) != question_key(["b", "a"]) and key.startswith("kinds/") and len(key) == 38


def test_the_labels_of_a_stored_answer_are_those_that_were_used() -> None:
    reply = answer(**{"Late  Fees": [1], "late fees": [2], "Refunds": [3]}).model_dump(mode="json")
    assert labels_by_name(reply) == ["late fees", "refunds"]
