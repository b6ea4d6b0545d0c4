"""Measurements of an earlier run count in the next one, as much as if both were one run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiences.learning.lessons.library import Lesson, Library
from experiences.rollouts.types import Scenario, TrajectoryGroup
from training.policies.context import ContextPolicy
from training.policies.effects import Effects
from training.policies.prior_estimates import PriorEstimates
from training.policies.query_words import QueryWords

WORTH = np.array([0.2, -0.1, 0.0, 0.15])


def library(*handles: str, version: int = 1) -> Library:
    return Library(tuple(Lesson(one, f"When {one}, look.", version=version) for one in handles))


def rollouts(effects: Effects, seed: int, groups: int = 60) -> Effects:
    """Takes in groups of eight, in which half of the rollouts have each lesson."""
    rng = np.random.default_rng(seed)
    z = rng.random((groups * 8, len(WORTH))) < 0.5
    reward = (rng.random(len(z)) < 0.4 + z @ WORTH).astype(np.float64)
    effects.learn(z, reward, np.repeat(np.arange(groups), 8), np.ones(len(WORTH), dtype=np.bool_))
    return effects


def fresh() -> Effects:
    effects = Effects()
    effects.grow(len(WORTH))
    return effects


def after(seed: int) -> ContextPolicy:
    policy = ContextPolicy.fresh(library("a", "b", "c", "d"), {})
    rollouts(policy.effects, seed)
    return policy


def test_two_runs_know_as_much_as_one_that_made_all_the_rollouts() -> None:
    known = PriorEstimates.from_json(json.loads(json.dumps(PriorEstimates.of(after(1)).as_json())))
    both, whole = rollouts(known.within(library("a", "b", "c", "d")), 2), rollouts(rollouts(fresh(), 1), 2)
    assert both.estimate().beta == pytest.approx(whole.estimate().beta)
    assert both.estimate().error == pytest.approx(whole.estimate().error)
    assert (both.rollouts == whole.rollouts).all()


def test_in_another_order_and_beside_new_lessons_each_keeps_its_own_figures() -> None:
    known, start = PriorEstimates.of(after(1)), ContextPolicy.fresh(library("d", "new", "b"), {})
    start.effects = known.within(start.library)
    before, now = known.effects.estimate(), start.estimate()
    # What those that are left out did in the same rollouts stays taken off.
    assert now.beta[[0, 2]] == pytest.approx(before.beta[[3, 1]])
    assert now.error[[0, 2]] == pytest.approx(before.error[[3, 1]], rel=0.01)
    assert now.information[1] == 0 and start.effects.rollouts.tolist() == [480.0, 0.0, 480.0]
    start.take(start.library.having(Lesson("e", "When e, look.")))
    assert len(start.effects.moment) == 4


def test_of_another_text_nothing_is_known() -> None:
    known = PriorEstimates.of(after(1))
    assert known.only(library("a", "b", version=2)).handles == ()
    assert (known.within(library("a", version=2)).estimate().information == 0).all()


def test_evidence_of_weight_a_quarter_doubles_the_standard_error() -> None:
    whole = PriorEstimates.of(after(1))
    quarter = whole.weighed(0.25)
    ratio = quarter.effects.estimate().error / whole.effects.estimate().error
    assert ratio == pytest.approx(2.0, abs=0.15)  # the ridge makes little rollouts a bit surer
    assert quarter.effects.rollouts.tolist() == [120.0] * 4


QUERIES = [f"{word} {form} {n}" for word in ("cargo", "wages", "rent") for form in ("now", "soon") for n in "xyz"]


def by_words(handles: str = "abcd", *, groups: int = 120) -> ContextPolicy:
    """A run in which each lesson helps, or harms, where one word occurs in the query."""
    rng = np.random.default_rng(5)
    lessons = [Lesson(one, f"When {one}, look.", task=QUERIES[at * 4]) for at, one in enumerate(handles)]
    policy = ContextPolicy.fresh(Library(tuple(lessons)), {}, words=QueryWords.fitted(QUERIES))
    of = rng.integers(len(QUERIES), size=groups)
    z = rng.random((groups * 4, len(lessons))) < 0.5
    group = np.repeat(np.arange(groups), 4)
    reward = 0.3 + (z * WORTH * 2 * (np.arange(4) == of[group][:, None] // 6)).sum(1)
    reward = reward + 0.2 * rng.standard_normal(len(z))
    policy.learn(z, reward, group, [TrajectoryGroup(Scenario(int(at), QUERIES[at]), []) for at in of])
    return policy


def next_run(known: PriorEstimates, begins_with: Library, words: QueryWords) -> ContextPolicy:
    known = PriorEstimates.from_json(json.loads(json.dumps(known.only(begins_with).as_json())))
    return ContextPolicy.fresh(
        begins_with,
        {},
        words=words,
        effects=known.within(begins_with),
        evidence=known.evidence_within(begins_with, words),
    )


def test_a_second_run_begins_with_what_one_longer_run_would_know_about_each_query() -> None:
    before = by_words()
    now = next_run(PriorEstimates.of(before), before.library, QueryWords.fitted(QUERIES))
    assert np.array_equal(now.by_query().mean, before.by_query().mean)
    assert np.array_equal(now.by_query().spread, before.by_query().spread)
    assert now.effects.variance == before.effects.variance and now.by_query().local > 0.5


def test_lessons_that_are_left_out_stay_taken_off_where_they_held() -> None:
    before = by_words()
    kept = Library((before.library.lessons[1], Lesson("new", "When new, look."), before.library.lessons[0]))
    now = next_run(PriorEstimates.of(before), kept, QueryWords.fitted(QUERIES))
    assert now.by_query().mean[[2, 0]] == pytest.approx(before.by_query().mean[[0, 1]], abs=0.01)
    assert not now.evidence.included[:, 1].any() and now.estimate().information[1] == 0
    # Sums and rollouts agree: nothing is counted twice.
    assert now.effects.gram == pytest.approx(now.evidence.sums().gram.sum(axis=0))
    assert now.effects.moment == pytest.approx(now.evidence.sums().moment.sum(axis=0))


def test_rollouts_that_are_no_longer_kept_count_by_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.policies.evidence.MOST", 200)
    before = by_words()
    now = next_run(PriorEstimates.of(before), before.library, QueryWords.fitted(QUERIES))
    assert len(now.evidence.reward) < 200
    assert now.effects.gram == pytest.approx(before.effects.gram) and now.effects.square == pytest.approx(
        before.effects.square
    )
    assert now.by_query().mean == pytest.approx(before.by_query().mean)


def test_a_quarter_of_the_weight_doubles_the_deviation_by_words() -> None:
    before, words = by_words(), QueryWords.fitted(QUERIES)
    whole, quarter = (next_run(PriorEstimates.of(before).weighed(w), before.library, words) for w in (1.0, 0.25))
    assert quarter.effects.gram == pytest.approx(whole.effects.gram / 4)
    assert quarter.effects.variance == pytest.approx(whole.effects.variance)
    there = words.of(QUERIES[0])[None, :]
    assert quarter.by_query().at(there)[1][0, 0] > 1.5 * whole.by_query().at(there)[1][0, 0]


def test_other_queries_share_what_holds_for_their_words() -> None:
    before, others = by_words(), ["cargo soon here", "cargo now here", "wages soon there", "wages now there"]
    now = next_run(PriorEstimates.of(before), before.library, words := QueryWords.fitted(others))
    effect = now.by_query().at(words.all(others))[0][:, 0]
    assert effect[:2].min() > 0.3 and abs(effect[2:]).max() < 0.1


def test_stored_estimates_of_earlier_releases_and_of_a_long_run_are_read() -> None:
    sums = PriorEstimates.of(after(1)).as_json()
    assert "rollouts" not in sums and not len(PriorEstimates.from_json(sums).evidence.reward)
    long = PriorEstimates.of(by_words(groups=750)).as_json()
    assert len(json.dumps(long)) < 60_000
