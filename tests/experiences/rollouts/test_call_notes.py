"""Notes of a model's calls: the request, and the reason for which the answer ended, in few bytes."""

from __future__ import annotations

from typing import Any

import pytest

from experiences.rollouts.call_notes import CallNotes, differing, settings_of

ASKED = {"temperature": 0.7, "top_p": None, "max_tokens": 512}


def test_the_first_call_is_kept_whole_and_later_ones_as_far_as_they_differ() -> None:
    notes = CallNotes()
    assert notes.noted(ASKED, "stop") == {"temperature": 0.7, "max_tokens": 512}
    assert notes.noted(ASKED, "tool_calls") == {}
    assert notes.noted({**ASKED, "temperature": 0.0}, "length") == {"temperature": 0.0, "finish": "length"}
    assert notes.noted({"max_tokens": 512, "top_p": 0.9}, "stop") == {"temperature": None, "top_p": 0.9}
    assert notes.noted(ASKED, None) == {}  # no answer came


@pytest.mark.parametrize(
    ("finish", "kept"),
    [
        ("content_filter", "content_filter"),
        ("", ""),
        ("stop", None),
        ("call Olivia 555-0199", "other"),
        ("x" * 41, "other"),
    ],
)
def test_of_a_providers_own_words_none_is_kept(finish: str, kept: str | None) -> None:
    assert CallNotes().noted({}, finish).get("finish") == kept


def test_a_value_that_is_no_number_is_no_setting() -> None:
    assert CallNotes().noted({"temperature": "warm", "top_p": True, "max_tokens": [1]}, "stop") == {}


def test_a_step_says_what_differs_from_the_first_call() -> None:
    notes = CallNotes()
    steps: list[dict[str, Any]] = [{}]
    steps += [{"call": notes.noted(ASKED, "stop")}, {"call": notes.noted({**ASKED, "max_tokens": 9}, "length")}]
    first = settings_of(steps)
    assert first == {"temperature": 0.7, "max_tokens": 512} and settings_of([{}, {"state": {}}]) == {}
    assert [differing(step, first) for step in steps] == [{}, {}, {"max_tokens": 9, "finish": "length"}]
