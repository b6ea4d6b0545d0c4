"""Feedback: its forms, implicit signals of sessions, and the reward made of both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evaluation.serving.feedback.implicit import AGAIN_WITHIN, QUIET_FOR, SessionTurn, is_abandoned, is_retried
from evaluation.serving.feedback.opinions import Opinion, Refused, evidence, opinion, success
from experiences.rollouts.rewards import signals

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
ASKED = "Where is my order 4711?"


@pytest.mark.parametrize(
    ("metric", "value", "read"),
    [
        ("thumbs", "up", 1), ("thumbs", "DOWN", 0), ("thumbs", True, 1), ("thumbs", -1, 0), ("stars", 1, 1),
        ("stars", 5.0, 5), ("success", False, 0), ("latency_felt", -2.5, -2.5), ("resolved", True, 1),
    ],
)  # fmt: skip
def test_feedback_form_reads_each_metric(metric: str, value: Any, read: float) -> None:
    assert opinion(metric, value) == Opinion(metric, read, "")


@pytest.mark.parametrize(
    ("metric", "value", "text", "field"),
    [
        ("thumbs", "sideways", "", "value"), ("thumbs", 2, "", "value"), ("thumbs", None, "", "value"),
        ("thumbs", [1], "", "value"), ("stars", 0, "", "value"), ("stars", 6, "", "value"), ("stars", 2.5, "", "value"),
        ("stars", "five", "", "value"), ("success", 1.1, "", "value"), ("mine", float("nan"), "", "value"),
        ("mine", 10**400, "", "value"), ("mine", 1e10, "", "value"), ("correction", None, "  ", "text"),
        ("comment", 1, "why", "value"), ("comment", None, "x" * 10_001, "text"), ("Mine", 1, "", "metric"),
        ("", 1, "", "metric"), ("a" * 41, 1, "", "metric"), ("retried", 1, "", "metric"),
    ],
)  # fmt: skip
def test_feedback_that_says_nothing_is_refused(metric: str, value: Any, text: str, field: str) -> None:
    with pytest.raises(Refused) as refused:
        opinion(metric, value, text)
    assert refused.value.field == field and str(refused.value)


@pytest.mark.parametrize(
    ("opinions", "value"),
    [
        ([], 0.5),
        ([("comment", None)], 0.5),
        ([("thumbs", 1.0), ("thumbs", 1.0), ("thumbs", 0.0)], 2 / 3),
        ([("stars", 5.0), ("thumbs", 0.0)], 0.5),
        ([("correction", None)], 0.2),
        ([("thumbs", 1.0), ("correction", None), ("abandoned", None)], 1.0),
        ([("retried", None)], 0.2),
        ([("retried", None), ("abandoned", None)], 0.2),
        ([("abandoned", None)], 0.0),
    ],
)
def test_opinions_become_what_the_composite_reads(opinions: list[tuple[str, float | None]], value: float) -> None:
    said = [Opinion(*one) for one in opinions]
    assert signals.feedback({"feedback": evidence(said)}) == pytest.approx(value)


def test_success_is_the_mean_of_what_was_said_of_the_task() -> None:
    assert success([Opinion("success", 1.0), Opinion("success", 0.0), Opinion("stars", 5.0)]) == 0.5
    assert success([Opinion("stars", 5.0)]) is None


def turn(asked: str = ASKED, minutes: float = 0, *, answered: bool = True) -> SessionTurn:
    return SessionTurn(NOON + timedelta(minutes=minutes), asked, answered)


@pytest.mark.parametrize(
    ("after", "retried"),
    [
        (turn(minutes=1), True),
        (turn("where is my order 4711", 9), True),
        (turn("So where is my order 4711?", 1), True),
        (turn("Where is my bicycle from last week?", 1), False),
        (turn(minutes=AGAIN_WITHIN.total_seconds() / 60 + 1), False),
        (turn("", 1), False),
    ],
)
def test_a_retry_asks_for_nearly_the_same_soon(after: SessionTurn, retried: bool) -> None:
    assert is_retried(turn(), after) is retried


def test_an_agent_that_goes_on_and_a_word_said_twice_are_no_retries() -> None:
    assert not is_retried(turn(""), turn("", 1))  # the results of tools: the person asks nothing again
    assert not is_retried(turn("continue"), turn("continue", 1))
    assert not is_retried(turn(answered=False), turn(minutes=1))  # it had no answer to be unhappy with


def test_a_session_is_abandoned_that_ends_without_an_answer() -> None:
    later = NOON + QUIET_FOR
    assert is_abandoned(turn(answered=False), later)
    assert not is_abandoned(turn(answered=False), later - timedelta(seconds=1))
    assert not is_abandoned(turn(), later + timedelta(days=1))
