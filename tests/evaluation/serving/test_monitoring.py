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
from scipy import stats

from evaluation.serving.monitoring.bands import LEAST, Difference
from evaluation.serving.monitoring.evidence import Evidence, FailureBets, ValueBets
from evaluation.serving.monitoring.fixed_rate import FixedRate
from evaluation.serving.monitoring.guardrails import ALPHA, WATCHED, WEIGHTS, CanarySession, Monitor
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
def test_a_bet_on_the_draw_of_the_arm_is_fair_for_any_outcome(data: st.DataObject, kind: str, share: float) -> None:
    outcomes = counted if kind == "failures" else numbers
    past, outcome = data.draw(st.lists(outcomes, max_size=12)), data.draw(outcomes)
    before = evidence(kind, past).logs
    after = {new: evidence(kind, past) for new in (True, False)}
    for new, one in after.items():
        one.add(outcome, new=new, share=share)
    for at, log in enumerate(before):
        mean = sum(p * math.exp(after[new].logs[at] - log) for new, p in ((True, share), (False, 1 - share)))
        assert mean == pytest.approx(1.0, rel=1e-9)


MORE = pytest.mark.thorough(reason="it simulates some dozen ramps, session by session")


@pytest.mark.slow(reason="it simulates some hundred ramps, session by session")
@pytest.mark.parametrize("drift", [0.0, pytest.param(0.8, marks=MORE)])
@pytest.mark.rounds
def test_equal_arms_are_hardly_ever_found_different(drift: float) -> None:
    """At most ALPHA of them, over all guardrails and all looks: 40 ramps have more than 7 false alarms in 1 of 1,000
    cases if 1 of 20 were false."""
    ramps, most = rounds((10, 4), (40, 7))
    rng = np.random.default_rng(11)
    assert sum(ramp(rng, OLD, OLD, drift=drift) is not None for _ in range(ramps)) <= most


@pytest.mark.slow(reason="it simulates some hundred ramps, session by session")
@pytest.mark.rounds
def test_twice_the_failures_are_found_after_some_two_hundred_sessions() -> None:
    ramps, most = rounds((25, 300), (50, 230))  # the median of 25 ramps varies more
    rng = np.random.default_rng(12)
    found = [ramp(rng, OLD, Arm(failures=0.1), steps=QUARTER) for _ in range(ramps)]
    stopped = [one for one in found if one is not None]
    assert len(stopped) >= 0.96 * len(found) - 0.4 and median(one.of_new for one in stopped) <= most


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


def test_monitor_restored_from_a_row_equals_an_uninterrupted_monitor() -> None:
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


def test_missing_values_change_nothing_and_a_wrong_share_is_refused() -> None:
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
def test_a_band_holds_the_truth_at_all_analyses() -> None:
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
    difference = Difference()
    assert math.isnan(difference.band().difference) and difference.means[0] != difference.means[0]
    while difference.new < LEAST:
        assert math.isinf(difference.band().high)
        difference.add(float(difference.n % 2), new=difference.n % 3 == 0, share=1 / 3)
    assert difference.band().low < difference.band().difference < difference.band().high


losses = st.floats(0, 1)


@given(st.lists(st.tuples(losses, st.booleans()), max_size=15), st.floats(0.02, 0.98), st.floats(0.01, 0.5), st.data())
def test_betting_that_an_arm_is_no_worse_gains_nothing_where_the_arm_is_worse_by_the_margin(
    past: list[tuple[float, bool]], share: float, margin: float, data: st.DataObject
) -> None:
    """For any history, and any loss of a session with either arm, if the new arm is worse by the margin."""
    current = data.draw(st.floats(0, 1 - margin))
    new = data.draw(st.floats(current + margin, 1)) if current + margin <= 1 else 1.0
    tried = {}
    for is_new in (True, False):
        result = NonInferiority(margin)
        for loss, of_new in past:
            result.add(loss, new=of_new, share=share)
        before = result.log
        result.add(new if is_new else current, new=is_new, share=share)
        tried[is_new] = math.exp(result.log - before)
    assert min(tried.values()) > 0
    assert share * tried[True] + (1 - share) * tried[False] <= 1 + 1e-9


@MORE
def test_equal_arms_are_promoted_and_one_ten_points_worse_is_not() -> None:
    rng = np.random.default_rng(18)
    equal = [promotion(rng, OLD, OLD, scored=False) for _ in range(20)]
    assert sum(one.stages == 3 for one in equal) >= 16  # some are taken back, a few take longer
    assert median(one.sessions for one in equal if one.stages == 3) < 3_000
    for worse, scored in ((Arm(failures=0.15), False), (Arm(success=0.6), True)):
        assert sum(promotion(rng, OLD, worse, scored=scored, most=6_000).stages > 0 for _ in range(20)) <= 3


def test_no_worse_asks_for_scores_where_there_are_any_and_goes_on_from_a_row() -> None:
    result = NoWorse(0.2)
    assert result.unshown == ["failures"]
    for at in range(60):
        result.add(new=at % 2 == 0, share=0.5, failures=0.0, score=None)
    assert result.unshown == []
    result.add(new=True, share=0.5, failures=0.0, score=0.4)
    assert result.unshown == ["score"]
    assert NoWorse.from_json(json.loads(json.dumps(result.as_json()))) == result
    for wrong in ({"loss": 1.1, "share": 0.5}, {"loss": 0.5, "share": 1.0}):
        with pytest.raises(ValueError, match="between"):
            NonInferiority(0.05).add(wrong["loss"], new=True, share=wrong["share"])


def failed(*, n: int, of: int, new: bool, begun: Evidence | None = None) -> Evidence:
    found = begun or Evidence(FailureBets())
    found.add((n, of), new=new, share=0.5)
    return found


def test_the_usual_rate_of_failure_is_that_of_the_old_arm_alone() -> None:
    """A new arm that fails must not make failure usual: that would hide what it breaks."""
    bets = FailureBets()
    bets.see((0, 80), new=False)
    before = bets.tilts((1, 1))
    bets.see((50, 50), new=True)
    assert bets.tilts((1, 1)) == before
    bets.see((50, 50), new=False)
    assert bets.tilts((1, 1)) != before


@pytest.mark.parametrize(("past", "rate"), [((0, 0), 1 / 20), ((9, 80), 10 / 100), ((180, 200), 181 / 220)])
def test_a_bet_on_failures_is_the_ratio_of_their_probabilities(past: tuple[int, int], rate: float) -> None:
    """1.5, 2 and 4 times the old arm's rate, where 1 of 20 had failed before any session; .98 at most."""
    bets = FailureBets()
    bets.see(past, new=False)
    for bad, n in ((0, 1), (1, 1), (2, 5)):
        for tilt, ratio in zip(bets.tilts((bad, n)), (1.5, 2.0, 4.0), strict=True):
            expected = stats.binom.pmf(bad, n, min(ratio * rate, 0.98)) / stats.binom.pmf(bad, n, rate)
            assert math.exp(tilt) == pytest.approx(expected, rel=1e-9)


def test_an_arm_that_always_failed_says_nothing_of_another_that_does() -> None:
    bets = FailureBets(1e6, 1e6)
    assert bets.tilts((3, 3)) == [0.0, 0.0, 0.0] and bets.tilts((0, 3)) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bet_on_a_value_is_the_ratio_of_normal_densities(sign: int) -> None:
    """A quarter, a half and one standard deviation on the worse side, by mean and deviation of all sessions before."""
    past = [3.0, 5.0, 4.0, 10.0, 2.5]
    bets = ValueBets(sign)
    for at, value in enumerate(past):
        bets.see(value, new=at % 2 == 0)
    mean, deviation = np.mean(past), np.std(past)
    for value in (1.0, 4.5, 9.0):
        for tilt, shift in zip(bets.tilts(value), (0.25, 0.5, 1.0), strict=True):
            worse = stats.norm.pdf(value, mean + sign * shift * deviation, deviation)
            assert math.exp(tilt) == pytest.approx(worse / stats.norm.pdf(value, mean, deviation), rel=1e-9)


def test_a_single_value_counts_for_no_more_than_three_standard_deviations() -> None:
    """Otherwise one outlier would take a release back."""
    bets = ValueBets(n=100, mean=0.0, squares=100.0)
    assert bets.tilts(1e9) == bets.tilts(3.0) and bets.tilts(-1e9) == bets.tilts(-3.0)
    assert bets.tilts(2.99) != bets.tilts(3.0) and bets.tilts(-2.99) != bets.tilts(-3.0)


def test_values_that_never_differed_say_nothing() -> None:
    bets = ValueBets()
    for value in (7.0, 7.0, 7.0):
        assert bets.tilts(9.0) == [0.0, 0.0, 0.0]
        bets.see(value, new=True)
    assert ValueBets(n=1, squares=4.0).tilts(9.0) == [0.0, 0.0, 0.0]
    assert any(ValueBets(n=2, squares=4.0).tilts(9.0))


def test_an_e_value_is_the_mean_over_its_alternatives_and_may_be_infinite() -> None:
    fresh = Evidence(FailureBets())
    assert fresh.e_value == 1.0
    assert Evidence(FailureBets(), [0.0, math.log(2), math.log(6)]).e_value == pytest.approx(3.0)
    assert math.isfinite(Evidence(FailureBets(), [700.0, 0.0, 0.0]).e_value)
    assert Evidence(FailureBets(), [0.0, 701.0, 0.0]).e_value == math.inf
    assert failed(n=1, of=1, new=True).e_value > 1 > failed(n=1, of=1, new=False).e_value
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="share"):
            fresh.add((1, 1), new=True, share=share)


def test_evidence_goes_on_from_a_row() -> None:
    for begun in (Evidence(FailureBets()), Evidence(ValueBets(-1))):
        for at in range(4):
            begun.add(
                (at % 2, 3) if isinstance(begun.bets, FailureBets) else float(at * at), new=at % 2 == 0, share=0.3
            )
        assert Evidence.from_json(json.loads(json.dumps(begun.as_json()))) == begun


@given(st.lists(st.tuples(numbers, st.booleans()), max_size=6), numbers, numbers, st.floats(0.01, 0.99))
def test_weighted_sessions_estimate_the_difference_of_the_arms_without_bias(
    past: list[tuple[float, bool]], of_new: float, of_old: float, share: float
) -> None:
    """For any outcome of a session with either arm, its expectation over the draw is the difference of the arms."""
    added = {}
    for new, value in ((True, of_new), (False, of_old)):
        difference = Difference()
        for earlier, is_new in past:
            difference.add(earlier, new=is_new, share=0.5)
        before = difference.total
        difference.add(value, new=new, share=share)
        added[new] = difference.total - before
    assert share * added[True] + (1 - share) * added[False] == pytest.approx(of_new - of_old, abs=1e-2)


def test_usual_values_do_not_widen_a_band() -> None:
    """Values are centred by the mean of all sessions before, of both arms."""
    difference = Difference()
    for new in (True, False, True, False, False):
        difference.add(5.0, new=new, share=0.25)
    assert difference.total == 5 / 0.25 and difference.squares == (5 / 0.25) ** 2  # those of the first session alone
    difference.add(11.0, new=False, share=0.25)  # the usual value is 5
    assert difference.total == pytest.approx(20 - 6 / 0.75) and difference.squares == pytest.approx(400 + 64)
    difference.add(6.0, new=True, share=0.25)  # and now 36 / 6
    assert difference.total == pytest.approx(12.0) and difference.means == (16 / 3, 26 / 4)
    assert difference.band() == (12 / 7, -math.inf, math.inf)


@pytest.mark.parametrize("n", [60, 400, 4000])
def test_the_band_is_the_boundary_of_the_normal_mixture(n: int) -> None:
    """At its ends the mixture martingale exp(S^2 rho^2 / (2 (n rho^2 + 1))) / sqrt(n rho^2 + 1) is 1 / alpha. With this
    rho the band is nearly the tightest at 400 sessions."""
    difference = Difference(n=n, new=n // 2, total=0.5 * n, squares=n * (0.25 + 4.0))  # a mean of .5, a deviation of 2
    for alpha in (0.05, 0.2):
        band = difference.band(alpha)
        assert band.difference == 0.5 and band.high - 0.5 == pytest.approx(0.5 - band.low)
        s = n * (band.high - 0.5) / 2.0
        rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / 400
        scaled = n * rho2 + 1
        assert math.exp(s * s * rho2 / (2 * scaled)) / math.sqrt(scaled) == pytest.approx(1 / alpha)
    assert difference.band() == difference.band(0.05)


def test_a_band_needs_thirty_sessions_of_each_arm() -> None:
    for new, old, drawn in ((29, 99, False), (99, 29, False), (30, 30, True)):
        band = Difference(n=new + old, new=new, total=1.0, squares=10.0).band()
        assert math.isfinite(band.low) == math.isfinite(band.high) == drawn


def test_a_rate_that_was_known_is_bounded_with_caution() -> None:
    """Agresti and Coull's upper bound; of few requests nothing is known, and no rate is none or all."""
    assert FixedRate.above(0, 19).rate == 0.1 and FixedRate.above(19, 19).rate == 0.1
    assert FixedRate.above(0, 20).rate == pytest.approx(0.19617, abs=1e-5)  # 2/24 + 2 sqrt(2/24 * 22/24 / 24)
    assert FixedRate.above(10, 196).rate == pytest.approx(0.09359, abs=1e-5)  # .06 + 2 sqrt(.06 * .94 / 200)
    assert FixedRate.above(0, 10_000).rate == 0.02 and FixedRate.above(1000, 1000).rate == 0.98


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.6])
def test_a_rate_as_before_is_no_evidence_and_a_worse_one_is(rate: float) -> None:
    ok, bad = FixedRate(rate), FixedRate(rate)
    ok.add(failed=False)
    bad.add(failed=True)
    for at, ratio in enumerate((1.5, 2.0, 4.0)):
        assert rate * math.exp(bad.logs[at]) + (1 - rate) * math.exp(ok.logs[at]) == pytest.approx(1.0)
        assert math.exp(bad.logs[at]) == pytest.approx(min(ratio * rate, 0.98) / rate)
    assert (ok.n, ok.failed, bad.n, bad.failed) == (1, 0, 1, 1) and ok.e_value < 1 < bad.e_value
    bad.add(failed=True)
    assert (bad.n, bad.failed) == (2, 2) and FixedRate.from_json(json.loads(json.dumps(bad.as_json()))) == bad


def test_the_evidence_against_a_known_rate_is_a_mean_and_may_be_infinite() -> None:
    assert FixedRate(0.1).e_value == 1.0
    assert FixedRate(0.1, logs=[0.0, math.log(2), math.log(6)]).e_value == pytest.approx(3.0)
    assert math.isfinite(FixedRate(0.1, logs=[700.0, 0.0, 0.0]).e_value)
    assert FixedRate(0.1, logs=[0.0, 0.0, 701.0]).e_value == math.inf


def with_logs(**logs: float) -> Monitor:
    return Monitor({name: Evidence(FailureBets(), [log, log, log]) for name, log in logs.items()})


def test_an_alarm_comes_at_twenty_over_all_guardrails_and_names_the_loudest() -> None:
    """.76 of the weight is that of failures; what is not known counts as 1, and cost and latency for nothing."""
    assert with_logs(failures=math.log(10)).e_value == pytest.approx(0.76 * 10 + 0.24)
    assert with_logs(reward=math.log(10)).e_value == pytest.approx(0.06 * 10 + 0.94)
    assert with_logs(cost=50.0, latency=50.0).alarm() is None
    assert with_logs(failures=math.log(25.9)).alarm() is None  # 19.92
    alarm = with_logs(failures=math.log(26.1)).alarm()
    assert alarm is not None and alarm.guardrail == "failures" and alarm.e_value == pytest.approx(0.76 * 26.1 + 0.24)
    loud = with_logs(failures=math.log(100), reward=math.log(1000), cost=99.0).alarm()
    assert loud is not None and loud.guardrail == "failures"  # 76 of it, where the reward has 60
    loud = with_logs(failures=math.log(100), reward=math.log(2000), safety=0.0).alarm()
    assert loud is not None and loud.guardrail == "reward"
    exact = Monitor({name: Evidence(FailureBets(), [math.log(20)] * 3) for name in WEIGHTS})
    assert (exact.alarm() is not None) == (exact.e_value >= 20)


def test_each_guardrail_knows_which_side_is_worse_and_counts_by_request() -> None:
    worse = {"failures": 2, "safety": 2, "session_failures": 2, "reward": -9.0, "session_reward": -9.0}
    worse |= {"cost": 9.0, "latency": 9.0}
    usual = {"failures": 0, "safety": 0, "session_failures": 0, "reward": 0.5, "session_reward": 0.5}
    usual |= {"cost": 0.5, "latency": 0.5}
    monitor = Monitor()
    for at in range(8):  # values vary a little, so that they have a deviation
        moved = {name: value + at % 2 if isinstance(value, float) else value for name, value in usual.items()}
        monitor.add(CanarySession(False, 0.5, 4, **moved))
    before = {name: one.e_value for name, one in monitor.evidence.items()}
    monitor.add(CanarySession(True, 0.5, 4, **worse))
    assert set(before) == set(WATCHED) == {*WEIGHTS, "cost", "latency"}
    assert all(monitor.evidence[name].e_value > before[name] for name in WATCHED)
    assert monitor.differences["failures"].means == (2 / 4, 0.0) and monitor.differences["cost"].means == (9.0, 1.0)


def test_a_first_session_stakes_by_the_usual_loss_and_the_margin() -> None:
    """Of 20 sessions before any, 1 was lost: mean .05, variance .0475, which a share of .5 makes .19. The stake that
    grows fastest for equal arms is margin / (variance + margin^2)."""
    result = NonInferiority(0.02)
    result.add(0.05, new=True, share=0.5)
    stake = 0.02 / (0.19 + 0.0004)
    assert math.exp(result.log) == pytest.approx(1 + stake * 0.02)
    result.add(0.0, new=False, share=0.5)  # the usual loss is 1.05 / 21 = .05, the variance .95 / 21
    variance = 0.95 / 21 / 0.25
    after = 0.02 / (variance + 0.0004) * (0.02 - 0.05 * 2)
    assert math.exp(result.log) == pytest.approx((1 + stake * 0.02) * (1 + after))
    assert (result.n, result.total, result.squares) == (2, pytest.approx(1.05), pytest.approx(0.9525))


@pytest.mark.parametrize(("margin", "share"), [(0.3, 0.5), (0.3, 0.1), (0.3, 0.95), (0.5, 0.9)])
def test_no_session_costs_more_than_half_of_the_capital(margin: float, share: float) -> None:
    worst = []
    for loss, new in ((1.0, True), (0.0, False)):
        result = NonInferiority(margin)
        result.add(loss, new=new, share=share)
        worst.append(math.exp(result.log))
    assert min(worst) >= 0.5 - 1e-12
    if share <= 0.5:
        assert min(worst) == pytest.approx(0.5)  # the stake is as high as it may be


def test_no_worse_is_shown_at_twenty_times_the_capital() -> None:
    assert NonInferiority(0.1, log=math.log(20) + 1e-9).shown and not NonInferiority(0.1, log=math.log(19.9)).shown
    for loss, share in ((-0.1, 0.5), (1.1, 0.5), (0.5, 0.0), (0.5, 1.0)):
        with pytest.raises(ValueError, match="between"):
            NonInferiority(0.1).add(loss, new=True, share=share)
    for loss in (0.0, 1.0):
        NonInferiority(0.1).add(loss, new=True, share=0.5)


def test_a_score_is_a_loss_turned_round() -> None:
    result = NoWorse(0.2)
    result.add(new=True, share=0.5, failures=0.25, score=0.9)
    assert result.known["failures"].total == 1.25 and result.known["score"].total == pytest.approx(1.1)
    assert result.unshown == ["failures", "score"] and result.known["score"].margin == 0.2


def test_a_margin_that_no_difference_exceeds_gains_with_each_session() -> None:
    for loss, new in ((1.0, True), (0.0, False)):
        result = NonInferiority(3.0)
        result.add(loss, new=new, share=0.5)
        assert result.log > 0


def test_a_band_of_sessions_that_never_differ_has_no_width() -> None:
    assert Difference(n=100, new=50, total=50.0, squares=25.0).band() == (0.5, 0.5, 0.5)
