"""The context that the gate measures is served, byte for byte and query by query, by every interface."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiences.learning.lessons.library import Lesson, Library
from experiences.learning.playbooks.items import CATEGORIES, PlaybookItem
from experiences.learning.rendering import HEAD, context_of, playbook_context
from experiences.rollouts.types import RolloutKey
from training.algorithm.relevance import QueryEffects
from training.policies.archive import pack, unpack
from training.policies.context import ContextPolicy
from training.policies.query_rule import Choice, QueryRule
from training.policies.query_words import QueryWords
from training.policies.served_context import ServedContext

KEY = RolloutKey(1, 0, 0)
QUERIES = [
    f"{verb} the {thing} of order {n}" for n, verb in enumerate(("sum", "sort", "count", "sum")) for thing in "ab"
]
WORDS = QueryWords.fitted(QUERIES)

texts = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() != "")


@st.composite
def libraries(draw: st.DrawFn) -> Library:
    """Lessons and items of a playbook, some of them out."""
    status = st.sampled_from(["proposed", "active", "pruned", "quarantined"])
    lessons = [Lesson(f"x{n}", draw(texts), status=draw(status)) for n in range(draw(st.integers(0, 5)))]
    items = [
        Lesson(
            f"s{n + 1}", draw(texts), kind="section", status=draw(status), category=draw(st.sampled_from(CATEGORIES))
        )
        for n in range(draw(st.integers(0, 5)))
    ]
    return Library(tuple(draw(st.permutations([*lessons, *items]))))


@st.composite
def policies(draw: st.DrawFn) -> tuple[ContextPolicy, Choice]:
    """A policy, and what it might ship: to all queries the same, or by a rule that knows some of the lessons."""
    library = draw(libraries())
    policy = ContextPolicy.fresh(library, {}, words=WORDS, distinguishes=True)
    handles = tuple(one.handle for one in library if draw(st.booleans()))
    known = [one for one in library if draw(st.booleans())]
    if not known or draw(st.booleans()):
        return policy, Choice(handles)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = 1 + WORDS.size
    mean = rng.normal(0, 0.2, (len(known), size))
    effects = QueryEffects(mean, mean**2 + rng.uniform(0, 0.1, mean.shape), 0.7)
    names, tokens = tuple(one.handle for one in known), tuple(one.tokens for one in known)
    rule = QueryRule(WORDS, names, tokens, effects, 0.6, draw(st.none() | st.integers(0, 3)), 60).as_stored()
    return policy, Choice(handles, rule)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(policies())
@settings(max_examples=150, deadline=None)
def test_a_candidate_is_served_in_the_form_that_was_measured(made: tuple[ContextPolicy, Choice]) -> None:
    policy, choice = made
    measured = policy.as_candidate(choice)
    proven = {query: measured.context_for(KEY, query).text for query in QUERIES}
    released = ServedContext.from_json(through_json(measured.as_json()))
    policy.ship(choice)
    stored = ContextPolicy.from_state_dict(unpack(pack(policy.state_dict())))
    # A later job begins with the rows of what was shipped: its active lessons, and the rule in JSON.
    rows = through_json([one.as_dict() for one in policy.library if one.status == "active"])
    rule = None if choice.rule is None else QueryRule.from_state_dict(through_json(choice.rule.as_json()))
    later = ContextPolicy.fresh(Library.of(rows), {}, rule=rule)
    for query in QUERIES:
        assert released.text_for(query) == proven[query]
        assert policy.context_for(KEY, query).text == stored.context_for(KEY, query).text == proven[query]
        assert later.context_for(KEY, query).text == proven[query]
        assert released.context_for(KEY, query).note == measured.context_for(KEY, query).note


@given(libraries())
@settings(max_examples=100, deadline=None)
def test_a_job_reads_a_playbook_as_production_does(library: Library) -> None:
    items = [one for one in library.live if one.category]
    given_out = playbook_context([PlaybookItem(one.handle, one.category, one.text) for one in items])  # type: ignore[arg-type]
    assert context_of(items) == given_out
    context = context_of(library.live)
    assert context.startswith(given_out)
    assert (HEAD in context[len(given_out) :]) == any(not one.category for one in library.live)


def test_items_are_by_category_with_their_names_and_lessons_after_them() -> None:
    contexts = [
        Lesson("x1", "When a\ncomes,  do b."),
        Lesson("s10", "Two\n\nlines", kind="section", category="failures"),
        Lesson("s9", "one", kind="section", category="failures"),
        Lesson("s2", "first", kind="section", category="strategies"),
    ]
    assert context_of(contexts) == (
        "## Strategies\n- [s2] first\n\n## Failures\n- [s9] one\n- [s10] Two\n  lines\n\n"
        + f"{HEAD}\n- When a comes, do b."
    )
    assert context_of([]) == playbook_context([]) == ""


@pytest.mark.parametrize("digits", [6, 9])
def test_only_a_rule_that_can_be_stored_whole_is_tried(digits: int) -> None:
    """A rule in JSON is rounded. One that is not would choose otherwise where an effect lies next to the bound."""
    size = 1 + WORDS.size
    effects = QueryEffects(10.0**-digits * np.eye(1, size), np.zeros((1, size)), 0.7)
    fine = QueryRule(WORDS, ("x1",), (5,), effects)
    assert fine.lessons_for(QUERIES[0]) == ("x1",) and fine.as_stored().lessons_for(QUERIES[0]) == ()
    stored = fine.as_stored()
    assert stored.as_json() == stored.as_stored().as_json()
