"""A bundle: the same bytes for the same agent, and what differs between two."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaluation.serving.releases.bundle import (
    Bundle,
    ModelPart,
    PlayPart,
    PolicyPart,
    ToolServerPart,
    differences,
    digest,
    setting_differences,
)
from evaluation.serving.releases.presenters import served_as
from experiences.learning.lessons.library import Lesson
from training.algorithm.relevance import QueryEffects
from training.policies.query_rule import QueryRule
from training.policies.query_words import QueryWords
from training.policies.served_context import ServedContext

LESSONS = (
    Lesson("x1", "When late, say when.", status="active"),
    Lesson("s1", "Read it twice.", kind="section", status="active", category="strategies"),
)
QUERIES = ["sum the apples", "sum the pears", "sort the apples", "sort the pears"]
WORDS = QueryWords.fitted(QUERIES)
BUNDLE = Bundle(
    runtime="llm",
    philosophy="react",
    model=ModelPart("small", "e1", "models", "openai", "http://127.0.0.1:9/v1", {"seed": 7}, 400),
    system="You answer customers.",
    tools=("calculator",),
    servers=(ToolServerPart("t1", "shop", ("orders", "refund")),),
    context=ServedContext(LESSONS),
)


def rule() -> QueryRule:
    size = 1 + WORDS.size
    effects = QueryEffects(np.eye(2, size), np.zeros((2, size)), 0.9)
    return QueryRule(WORDS, ("x1", "s1"), (5, 5), effects).as_stored()


@pytest.mark.parametrize(
    "bundle",
    [BUNDLE, replace(BUNDLE, context=ServedContext(LESSONS, rule())), Bundle("action", policy=PolicyPart("c1", "ab"))],
)
def test_bundle_is_the_same_after_writing_and_reading(bundle: Bundle) -> None:
    stored = json.loads(json.dumps(bundle.as_json()))
    again = Bundle.from_json(stored)
    assert again.as_json() == bundle.as_json() and digest(stored) == digest(again.as_json())
    for query in QUERIES:
        assert again.context.text_for(query) == bundle.context.text_for(query)


def test_a_digest_is_of_the_served_content_and_not_of_its_layout() -> None:
    stored = BUNDLE.as_json()
    turned = dict(reversed(list(stored.items())))
    assert digest(turned) == digest(stored) and len(digest(stored)) == 64
    assert digest(replace(BUNDLE, system="You answer customers!").as_json()) != digest(stored)


def test_a_bundle_of_a_later_format_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="format 2"):
        Bundle.from_json(BUNDLE.as_json() | {"format": 2})


def test_two_bundles_differ_in_what_is_served_otherwise() -> None:
    after = replace(
        BUNDLE,
        model=replace(BUNDLE.model, name="large"),
        system="",
        tools=(),
        servers=(ToolServerPart("t1", "shop", ("orders",)),),
        context=ServedContext((replace(LESSONS[0], text="When late, say sorry."), Lesson("x9", "New.")), rule()),
    )
    values = {(one.part, one.name): (one.kind, one.before, one.after) for one in differences(BUNDLE, after)}
    assert values == {
        ("model", "model"): ("changed", "small", "large"),
        ("prompt", "system prompt"): ("removed", "You answer customers.", ""),
        ("tool", "calculator"): ("removed", "calculator", ""),
        ("tool of a server", "shop: refund"): ("removed", "shop: refund", ""),
        ("lesson", "x1"): ("changed", "When late, say when.", "When late, say sorry."),
        ("item", "s1"): ("removed", "Read it twice.", ""),
        ("lesson", "x9"): ("added", "", "New."),
        ("rule", "lessons for each query"): (
            "changed", "all queries receive all lessons", "chooses among 2 lessons for each query",
        ),
    }  # fmt: skip
    assert differences(BUNDLE, BUNDLE) == []
    assert {one.part for one in setting_differences(BUNDLE, after)} == {"model", "prompt", "tool", "tool of a server"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"philosophy": "chat", "play": PlayPart()}, "As it was measured: prompt, context"),
        ({"play": PlayPart({"react": "Use them."})}, "the instructions of ReAct, runs its 3 tools and returns"),
        (
            {"play": PlayPart({"react": "Use them."}), "tools": (), "servers": ()},
            "of ReAct and returns the final answer",
        ),
        (
            {"play": PlayPart({"react": "Use them."}, world="workbench")},
            "Not as it was measured: ReAct was measured in",
        ),
        ({}, "Made by an earlier version"),
        ({"runtime": "http"}, "called at its own address"),
        ({"runtime": "action", "policy": PolicyPart("c1", "ab")}, "it plays one episode for each query"),
    ],
)
def test_a_bundle_says_how_it_is_served(changes: dict[str, Any], says: str) -> None:
    bundle = replace(BUNDLE, **changes)
    assert says in served_as(bundle)
    assert bundle.is_played == ("instructions" in says or "final answer" in says)
    assert Bundle.from_json(bundle.as_json()) == bundle


def test_the_way_of_playing_is_a_difference_and_no_reason_to_call_a_release_outdated() -> None:
    before, after = (replace(BUNDLE, play=PlayPart({"react": text}, 0.3)) for text in ("Use them.", "Use tools."))
    assert [(one.part, one.name) for one in differences(before, after)] == [("agent", "instructions")]
    assert [one.name for one in differences(BUNDLE, before)] == ["instructions", "temperature", "limits"]
    assert setting_differences(BUNDLE, after) == []
