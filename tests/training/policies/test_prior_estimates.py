"""Measurements of an earlier run count in the next one, as much as if both were one run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiences.learning.lessons.library import Lesson, Library
from training.policies.context import ContextPolicy
from training.policies.effects import Effects
from training.policies.prior_estimates import PriorEstimates

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
