"""The gate and the steps of a search, from success rates alone: comparisons, reports, and samples that are paid for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiences.learning.lessons.library import Lesson, Library
from tests.support.context_runs import setup_of
from tests.support.world import World
from training.algorithm.inference import paired_difference
from training.algorithm.relevance import QueryEffects
from training.algorithm.sequential import Sequential
from training.learners import gate
from training.policies.query_rule import Choice, QueryRule
from training.policies.query_words import QueryWords, hashes_of
from training.trainer import TrainerSetup, TrainerState
from training.trainer.play import Played

ROWS = World(21).rows(80, 21)
BEGAN = Library((Lesson("x0", "When it rains, do 0."), Lesson("x1", "When it snows, do 1."))).moved(
    ["x0", "x1"], "active"
)
NEW = Lesson("x9", "When new, do new.")


def begun(algorithm: str = "tfgrpo", rate: float = 0.5, **context: Any) -> tuple[TrainerSetup, TrainerState, Any]:
    """A run of 6 iterations that began with two lessons and found a third."""
    short = {"n_iterations": 6, "batch_size": 5, "n_trajectories_per_query": 4, "eval_interval": 3, "eval_samples": 2}
    setup, *_ = setup_of("http://localhost:1", ROWS, short | {"algorithm": algorithm, "context": context}, seed=4)
    setup = replace(setup, library=BEGAN)
    state = setup.fresh_state()
    policy: Any = state.policy
    policy.take(policy.library.having(NEW))
    state.iteration = 4
    state.baseline_success = state.search_start = state.current_success = successes(rate)
    return setup, state, policy


def successes(rate: float, n: int = 24, samples: int = 16) -> Any:
    return (np.random.default_rng(round(rate * 100)).random((n, samples)) < rate).astype(float)


def played(success: Any) -> Played:
    return Played(success, np.ones_like(success), success, [[] for _ in success])


class Sampler:
    """Plays further samples at a rate, and notes what was asked."""

    def __init__(self, rate: float) -> None:
        self.rate, self.asked = rate, list[tuple[int, int]]()

    def __call__(self, first: int, samples: int) -> Played:
        self.asked.append((first, samples))
        return played(successes(self.rate, samples=samples))


@pytest.mark.parametrize(
    ("rate", "decision", "looks"), [(0.5, "not_better", 1), (0.95, "better", 1), (0.62, None, None)]
)
def test_samples_are_drawn_by_the_step_while_the_comparison_is_open(
    rate: float, decision: str | None, looks: int | None
) -> None:
    """Of both sides alike; what is there already is not paid for again."""
    setup, state, _ = begun()
    planned = gate.design(setup.config)
    assert planned == Sequential(4, 4, 0.025)
    state.baseline_success = successes(0.5, samples=4)
    more, of_start = Sampler(rate), Sampler(0.5)
    result = gate.compare(setup.config, state, played(successes(rate, samples=2)), more=more, more_of_start=of_start)
    assert result.most == 4 and 1 <= result.analyses <= 4
    assert more.asked == [(2, 2), (4, 4), (8, 4), (12, 4)][: result.analyses]
    assert of_start.asked == [(4, 4), (8, 4), (12, 4)][: result.analyses - 1]
    assert result.before.shape == result.played.success.shape == (24, 4 * result.analyses)
    assert np.array_equal(state.baseline_success, result.before)
    rates = result.played.success.mean(axis=1) - result.before.mean(axis=1)
    assert result.analysis == planned.analyse(rates, result.analyses)
    if decision:
        assert (result.analysis.decision, result.analyses) == (decision, looks)


def test_a_comparison_uses_the_samples_of_its_step_alone() -> None:
    """Samples beyond those of a look belong to later looks: both sides are compared over as many."""
    setup, state, _ = begun()
    late = np.hstack([np.zeros((24, 4)), np.ones((24, 12))])
    state.baseline_success = np.hstack([np.full((24, 4), 1.0), np.zeros((24, 12))])
    result = gate.compare(setup.config, state, played(late), more=Sampler(1), more_of_start=Sampler(1))
    assert (result.analyses, result.analysis.decision, result.before.shape) == (1, "not_better", (24, 4))


def test_the_start_is_not_compared_with_itself() -> None:
    setup, state, policy = begun("grpo")
    same = played(successes(0.5))
    compared = gate.unchanged(same)
    assert compared.played is same and np.array_equal(compared.before, same.success)
    assert (compared.analyses, compared.most, compared.analysis) == (0, 0, (0.0, 1.0, "not_better"))
    report = gate.decide(setup, state, policy, policy.candidate(0.8), compared)
    assert (report.why, report.gain, report.p_value, report.looks, report.most_looks) == (gate.NOTHING_NEW, 0, 1, 0, 0)


@pytest.mark.parametrize("algorithm", ["grpo", "tfgrpo"])
def test_the_report_of_a_gate_holds_both_rates_and_the_evidence(algorithm: str) -> None:
    setup, state, policy = begun(algorithm)
    candidate = Choice(("x0", "x1", "x9"))
    result = gate.compare(setup.config, state, played(successes(0.95)), more=Sampler(0), more_of_start=Sampler(0))
    report = gate.decide(setup, state, policy, candidate, result)
    both = result.played.success, result.before
    difference = paired_difference(*both, resamples=999)
    assert report.accepted and report.final and not report.kept and report.why == gate.SHOWN
    assert (report.candidate, report.current, policy.shipped) == (candidate.handles, ("x0", "x1"), candidate.handles)
    assert (report.iteration, report.epoch) == (4, setup.epoch(4))
    assert (report.n_queries, report.samples) == both[0].shape
    assert (report.candidate_rate, report.current_rate) == (both[0].mean(), both[1].mean())
    assert (report.difference, report.low, report.high) == (difference.mean, difference.low, difference.high)
    assert (report.gain, report.p_value) == (difference.mean, result.analysis.p_value)
    assert (report.looks, report.most_looks) == (result.analyses, 4)
    assert report.needs is None and report.rolled_back == []
    tokens = sum(one.tokens for one in policy.library)
    assert (report.tokens, report.lessons_each) == (tokens, 3.0)
    # Nothing was measured, so that all that is known of each lesson is which words are likely.
    assert set(report.where) <= set(candidate.handles) if algorithm == "grpo" else report.where == {}


@pytest.mark.parametrize(("algorithm", "back"), [("grpo", []), ("tfgrpo", ["x9"])])
def test_a_refused_candidate_leaves_the_start_and_says_how_many_queries_its_gain_takes(
    algorithm: str, back: list[str]
) -> None:
    setup, state, policy = begun(algorithm)
    before = state.baseline_success = np.zeros((24, 16))
    better = before.copy()
    better[:, :2] = 1.0
    compared = replace(gate.unchanged(played(better)), before=before, analyses=2, most=4)
    report = gate.decide(setup, state, policy, Choice(("x0", "x9")), compared)
    assert not report.accepted and report.why == gate.NOT_SHOWN and report.rolled_back == back
    assert policy.shipped == ("x0", "x1") and report.gain == 0.125
    assert (
        report.needs is not None
        and 5 < report.needs <= 60
        and report.needs == gate.design(setup.config).queries_for(report.gain, 0.8)
    )
    equal = replace(compared, played=played(before))
    assert gate.decide(setup, state, policy, Choice(("x0", "x9")), equal).needs is None


def test_a_step_of_the_search_keeps_an_equal_candidate_and_ships_nothing() -> None:
    setup, state, policy = begun()
    state.search_start = successes(0.4)
    after = played(successes(0.52))
    kept_success = state.current_success
    report = gate.keep(setup, state, policy, Choice(("x0", "x1", "x9")), after)
    difference = paired_difference(after.success, kept_success, resamples=999)
    assert report.kept and not report.final and not report.accepted and report.why == gate.LOOKS_NO_WORSE
    assert (report.current, report.current_rate) == (("x0", "x1"), kept_success.mean())
    assert (report.difference, report.low, report.high) == (difference.mean, difference.low, difference.high)
    assert report.gain == pytest.approx(after.success.mean() - successes(0.4).mean())
    differences = after.success.mean(axis=1) - successes(0.4).mean(axis=1)
    assert report.p_value == Sequential(1, 1, 0.025).analyse(differences, 1).p_value
    assert policy.kept == ("x0", "x1", "x9") and policy.shipped == ("x0", "x1")
    assert state.current_success is after.success


def test_a_step_may_be_worse_by_the_margin_and_by_no_more() -> None:
    """A step is rolled back beyond ``gate_margin``, and the success that it is compared with stays."""
    setup, state, policy = begun(gate_margin=0.25)
    before = state.current_success = np.tile([1.0, 0.0], (24, 8))
    for rate, keeps in ((0.25, True), (0.1875, False)):
        after = np.zeros((24, 16))
        after[:, : round(rate * 16)] = 1.0
        policy.kept, state.current_success = ("x0", "x1"), before
        report = gate.keep(setup, state, policy, Choice(("x0", "x1", "x9")), played(after))
        assert (report.kept, not report.rolled_back) == (keeps, keeps)
        assert report.difference == rate - 0.5 and not report.accepted and not report.final
        assert (report.why == gate.LOOKS_WORSE) is not keeps
        assert policy.kept == (("x0", "x1", "x9") if keeps else ("x0", "x1"))
        assert (state.current_success is before) is not keeps
        policy.kept_library = BEGAN


def test_steps_of_a_search_end_by_their_interval_and_with_their_epoch() -> None:
    setup, *_ = begun(search_every=2, epochs=2)
    assert [at for at in range(1, 7) if gate.ends_step(setup, at)] == [2, 3, 4, 6]
    assert gate.searches(setup.config)
    without, *_ = begun("grpo", search_every=2)
    assert not any(gate.ends_step(without, at) for at in range(1, 7)) and not gate.searches(without.config)


QUERIES = ["rain in the morning", "rain in the evening", "snow on the road", "snow on the roof"]


def rule() -> QueryRule:
    """One lesson helps with rain, one with everything, and one with nothing."""
    words = QueryWords.fitted(QUERIES)
    mean = np.hstack([np.array([[-0.05], [0.2], [-0.1]]), [0.3 * words.of("rain"), 0 * words.of(""), 0 * words.of("")]])
    spread = np.zeros(mean.shape)
    spread[:, 0] = 0.0125, 0.08, 0.02
    spread[0, 1:] = 0.06 * words.of("rain")
    return QueryRule(words, ("x0", "x1", "x9"), (5, 6, 7), QueryEffects(mean, spread, 1.0))


def test_the_reach_of_a_lesson_is_reported_where_queries_get_different_lessons() -> None:
    choice = Choice(("x0", "x1"), rule())
    assert [choice.handles_for(query) for query in QUERIES] == [("x0", "x1")] * 2 + [("x1",)] * 2
    result = gate.where(choice, rule(), QUERIES)
    assert hashes_of("rain") <= set(result["x0"].pop("terms"))
    assert result == {
        "x0": pytest.approx({"share": 0.5, "effect": 0.25, "error": 0.1, "others": -0.05}),
        "x1": pytest.approx({"share": 1.0, "effect": 0.2, "error": 0.2}),
    }
    for_all = gate.where(Choice(("x0", "x1")), rule(), QUERIES)
    assert for_all["x0"]["share"] == 0.5 and for_all["x1"]["share"] == 1.0 and set(for_all) == {"x0", "x1"}
    assert hashes_of("rain") <= set(for_all["x0"]["terms"]) and "terms" not in for_all["x1"]


def test_the_size_of_a_context_is_the_mean_over_the_queries_of_training() -> None:
    setup, state, policy = begun("grpo")
    setup = replace(setup, train=[replace(setup.train[0], query=query) for query in QUERIES])
    result = gate.compare(setup.config, state, played(successes(0.95)), more=Sampler(0), more_of_start=Sampler(0))
    choice = Choice(("x0", "x1"), rule())
    report = gate.decide(setup, state, policy, choice, result)
    tokens = {one.handle: one.tokens for one in policy.library}
    assert report.lessons_each == 1.5 and report.tokens == round(0.5 * tokens["x0"] + tokens["x1"])
    assert report.where == gate.where(choice, rule(), QUERIES)
    nothing = gate.decide(replace(setup, train=[]), state, policy, Choice(("x0",)), result)
    assert (nothing.lessons_each, nothing.tokens, nothing.where) == (0.0, 0, {})


@pytest.mark.parametrize("missing", ["search_start", "current_success"])
def test_a_step_of_a_search_needs_the_success_of_its_start_and_of_its_present_context(missing: str) -> None:
    setup, state, policy = begun()
    setattr(state, missing, None)
    with pytest.raises(AssertionError):
        gate.keep(setup, state, policy, Choice(("x0",)), played(successes(0.5)))
