"""The tests of a canary: valid at any analysis and for any traffic, and quick if something broke."""

from __future__ import annotations

import json
import math
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.serving.monitoring.bands import LEAST, Difference
from evaluation.serving.monitoring.evidence import Evidence, FailureBets, ValueBets
from evaluation.serving.monitoring.guardrails import ALPHA, WEIGHTS, CanarySession, Monitor
from evaluation.serving.monitoring.non_inferiority import NonInferiority, NoWorse
from tests.support.ramps import Arm, promotion, ramp
from tests.support.rounds import rounds

OLD = Arm()
QUARTER = ((0.25, 6000),)

counted = st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
numbers = st.floats(-1e6, 1e6)


def evidence(kind: str, past: list[Any]) -> Evidence:
    made = Evidence(FailureBets() if kind == "failures" else ValueBets())
    for at, outcome in enumerate(past):
        made.add(outcome, new=at % 3 == 0, share=0.3)
    return made


@given(st.data(), st.sampled_from(["failures", "value"]), st.floats(0.01, 0.99))
def test_a_bet_on_the_draw_of_the_arm_is_fair_whatever_the_outcome(
    data: st.DataObject, kind: str, share: float
) -> None:
    outcomes = counted if kind == "failures" else numbers
    past, outcome = data.draw(st.lists(outcomes, max_size=12)), data.draw(outcomes)
    before = evidence(kind, past).logs
    after = {new: evidence(kind, past) for new in (True, False)}
    for new, one in after.items():
        one.add(outcome, new=new, share=share)
    for at, log in enumerate(before):
        mean = sum(p * math.exp(after[new].logs[at] - log) for new, p in ((True, share), (False, 1 - share)))
        assert mean == pytest.approx(1.0, rel=1e-9)


@pytest.mark.slow(reason="it simulates some hundred ramps, session by session")
@pytest.mark.parametrize("drift", [0.0, 0.8])
@pytest.mark.rounds
def test_equal_arms_are_hardly_ever_told_apart(drift: float) -> None:
    """At most ALPHA of them, over all guardrails and all looks: 40 ramps have more than 7 false alarms in 1 of 1,000
    cases if 1 of 20 were false."""
    ramps, most = rounds((10, 4), (40, 7))
    rng = np.random.default_rng(11)
    assert sum(ramp(rng, OLD, OLD, drift=drift) is not None for _ in range(ramps)) <= most


@pytest.mark.slow(reason="it simulates some hundred ramps, session by session")
@pytest.mark.rounds
def test_twice_the_failures_are_found_after_some_two_hundred_sessions() -> None:
    rng = np.random.default_rng(12)
    found = [ramp(rng, OLD, Arm(failures=0.1), steps=QUARTER) for _ in range(rounds(15, 50))]
    stopped = [one for one in found if one is not None]
    assert len(stopped) >= 0.96 * len(found) - 0.4 and median(one.of_new for one in stopped) <= 230


def test_an_arm_that_always_fails_is_gone_at_once() -> None:
    rng = np.random.default_rng(13)
    found = [ramp(rng, OLD, Arm(failures=1.0), steps=QUARTER) for _ in range(30)]
    assert all(one is not None and one.of_new < 15 and one.guardrail == "failures" for one in found)


@pytest.mark.parametrize(
    ("worse", "guardrail"),
    [(Arm(success=0.5), "reward"), (Arm(failures=0.2), "failures")],
)
def test_each_guardrail_names_what_got_worse(worse: Arm, guardrail: str) -> None:
    rng = np.random.default_rng(14)
    found = [ramp(rng, OLD, worse, steps=QUARTER) for _ in range(4)]
    assert all(one is not None and one.guardrail == guardrail for one in found)


@pytest.mark.slow(reason="it simulates some hundred ramps, session by session")
@pytest.mark.rounds
def test_a_better_arm_goes_through() -> None:
    rng = np.random.default_rng(15)
    better = Arm(failures=0.02, success=0.8, cost=3.0, latency=3.0)  # a higher cost is no reason
    n = rounds(5, 20)
    assert [ramp(rng, OLD, better) for _ in range(n)] == [None] * n


def test_it_goes_on_from_a_row_as_if_it_had_never_stopped() -> None:
    rng = np.random.default_rng(16)
    whole, parts = Monitor(), Monitor()
    for _ in range(300):
        session = CanarySession(
            bool(rng.random() < 0.25), 0.25, 3, int(rng.integers(0, 3)), None, rng.normal(), 0.01, 1.5
        )
        whole.add(session)
        parts = Monitor.from_json(json.loads(json.dumps(parts.as_json())))
        parts.add(session)
    assert parts.as_json() == whole.as_json() and "safety" not in whole.evidence
    assert parts.differences["reward"].band() == whole.differences["reward"].band()


def test_what_is_not_known_says_nothing_and_a_wrong_share_is_refused() -> None:
    monitor = Monitor()
    assert monitor.e_value == pytest.approx(1.0) and sum(WEIGHTS.values()) == pytest.approx(1.0)
    monitor.add(CanarySession(True, 0.5, 1, failures=0))
    assert set(monitor.evidence) == {"failures"}
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="share"):
            monitor.add(CanarySession(True, share, 1))
        with pytest.raises(ValueError, match="share"):
            Difference().add(1.0, new=True, share=share)


@pytest.mark.rounds
def test_a_band_holds_the_truth_at_all_looks() -> None:
    """Of 200 sequences of 1,500 sessions at most 1 in 20 leave it out at some look
    (here: at most 15; of 40, at most 7)."""
    rng = np.random.default_rng(17)
    missed, (sequences, most) = 0, rounds((40, 7), (200, 15))
    for _ in range(sequences):
        found, out = Difference(), False
        new = rng.random(1500) < 0.25
        values = rng.random(1500) < np.where(new, 0.6, 0.7)
        for at in range(1500):
            found.add(float(values[at]), new=bool(new[at]), share=0.25)
            if at % 10 == 0:
                band = found.band(ALPHA)
                out |= not band.low <= -0.1 <= band.high
        missed += out
    assert missed <= most


def test_a_band_is_drawn_once_both_arms_have_been_seen_often_enough() -> None:
    found = Difference()
    assert math.isnan(found.band().difference) and found.means[0] != found.means[0]
    while found.new < LEAST:
        assert math.isinf(found.band().high)
        found.add(float(found.n % 2), new=found.n % 3 == 0, share=1 / 3)
    assert found.band().low < found.band().difference < found.band().high


losses = st.floats(0, 1)


@given(st.lists(st.tuples(losses, st.booleans()), max_size=15), st.floats(0.02, 0.98), st.floats(0.01, 0.5), st.data())
def test_betting_that_an_arm_is_no_worse_gains_nothing_where_it_is_worse_by_the_margin(
    past: list[tuple[float, bool]], share: float, margin: float, data: st.DataObject
) -> None:
    """Whatever was seen before, and whatever a session would lose with either arm, if that is worse by the margin."""
    current = data.draw(st.floats(0, 1 - margin))
    new = data.draw(st.floats(current + margin, 1)) if current + margin <= 1 else 1.0
    tried = {}
    for is_new in (True, False):
        found = NonInferiority(margin)
        for loss, of_new in past:
            found.add(loss, new=of_new, share=share)
        before = found.log
        found.add(new if is_new else current, new=is_new, share=share)
        tried[is_new] = math.exp(found.log - before)
    assert min(tried.values()) > 0
    assert share * tried[True] + (1 - share) * tried[False] <= 1 + 1e-9


@pytest.mark.slow(reason="it simulates some dozen ramps, session by session")
def test_equal_arms_are_promoted_and_one_ten_points_worse_is_not() -> None:
    rng = np.random.default_rng(18)
    equal = [promotion(rng, OLD, OLD, scored=False) for _ in range(20)]
    assert sum(one.stages == 3 for one in equal) >= 16  # some are taken back, a few take longer
    assert median(one.sessions for one in equal if one.stages == 3) < 3_000
    for worse, scored in ((Arm(failures=0.15), False), (Arm(success=0.6), True)):
        assert sum(promotion(rng, OLD, worse, scored=scored, most=6_000).stages > 0 for _ in range(20)) <= 3


def test_no_worse_asks_for_scores_where_there_are_any_and_goes_on_from_a_row() -> None:
    found = NoWorse(0.2)
    assert found.unshown == ["failures"]
    for at in range(60):
        found.add(new=at % 2 == 0, share=0.5, failures=0.0, score=None)
    assert found.unshown == []
    found.add(new=True, share=0.5, failures=0.0, score=0.4)
    assert found.unshown == ["score"]
    assert NoWorse.from_json(json.loads(json.dumps(found.as_json()))) == found
    for wrong in ({"loss": 1.1, "share": 0.5}, {"loss": 0.5, "share": 1.0}):
        with pytest.raises(ValueError, match="between"):
            NonInferiority(0.05).add(wrong["loss"], new=True, share=wrong["share"])
