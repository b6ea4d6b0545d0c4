"""Environments that are one function: their bounds, their splits, and a score that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from experiences.rollouts.environments.base import environments
from experiences.rollouts.environments.text import AnswerEpisode, TextEnvironment, TextTasks, text_environment
from experiences.rollouts.types import Outcome

TASKS = TextTasks({f"Query {i}": i for i in range(40)}, lambda answer, expected: int(answer) - expected, "Be brief.")


def answered(text: str | None, *, expected: int = 3) -> Outcome:
    episode = AnswerEpisode(TASKS, TextEnvironment("made", TASKS).scenarios("train", 20, 0)[0])
    episode.scenario = type(episode.scenario)(0, f"Query {expected}", {"answer": expected})
    if text is not None:
        assert asyncio.run(episode.say(text)).done
    return episode.outcome()


@pytest.mark.parametrize("seed", range(5))
def test_its_splits_share_no_query_and_are_the_same_each_time(seed: int) -> None:
    world = TextEnvironment("made", TASKS)
    splits = [world.scenarios(*asked, seed) for asked in (("train", 20), ("selection", 4), ("held_out", 16))]
    assert sorted(one.query for split in splits for one in split) == sorted(TASKS.queries)
    assert all(TASKS.queries[one.query] == one.expected["answer"] for split in splits for one in split)
    assert splits[2] == world.scenarios("held_out", 16, seed)
    with pytest.raises(ValueError, match="has 4, and 5 were asked for"):
        world.scenarios("selection", 5, seed)


def test_a_score_out_of_bounds_or_an_error_of_the_score_is_a_score_of_zero() -> None:
    right = answered("Answer: 4")
    assert (right.score, right.success, right.evidence) == (1.0, True, {"answer": "4", "expected": 3})
    assert answered("3").score == 0 and "scorer_error" not in answered("3").evidence
    assert answered("9").evidence["scorer_error"] == "ValueError: the score 6.0 is not in [0, 1]"
    assert "invalid literal" in answered("none").evidence["scorer_error"]
    assert answered(None).evidence == {"answered": False}


async def test_the_instructions_come_before_the_query() -> None:
    world = TextEnvironment("made", TASKS)
    one = world.scenarios("train", 1, 0)[0]
    assert await world.start(one, None).opening() == f"Be brief.\n\n{one.query}"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ({"a": 1}, "There are 1 queries; from 10 to 1,000,000 are possible."),
        ({f"{i}" * 20_001: i for i in range(10)}, "from 1 to 20,000 characters"),
        ({" " * i: i for i in range(10)}, "from 1 to 20,000 characters"),
    ],
)
def test_environment_refuses_queries_out_of_bounds(queries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TextTasks(queries, lambda answer, expected: 0.0)


def test_an_option_and_a_docstring_that_are_forgotten_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_items", dict(environments._items))

    def made(*, size: int) -> TextTasks:
        return TASKS

    with pytest.raises(TypeError, match="environment made: each of its options needs an Option"):
        text_environment("Made")(made)

    def bare() -> TextTasks:
        return TASKS

    with pytest.raises(TypeError, match="environment bare needs a docstring"):
        text_environment("Bare")(bare)
