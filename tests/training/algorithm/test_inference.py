"""Intervals and tests: against published numbers, SciPy, enumeration and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from agentcore_site.lib.statistics import wilson_interval, z_value
from training.algorithm.inference import (
    paired_difference,
    per_query,
    sign_flip_p_value,
    student_interval,
    surely_apart,
)


@pytest.mark.parametrize(("x", "n"), [(0, 10), (1, 10), (9, 10), (10, 10), (81, 263), (1, 1)])
def test_wilson_agrees_with_scipy(x: int, n: int) -> None:
    expected = stats.binomtest(x, n).proportion_ci(method="wilson")
    assert wilson_interval(x, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_knows_nothing_of_nothing_and_refuses_the_impossible() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson_interval(3, 2)


def test_z_value_is_the_familiar_quantile() -> None:
    assert z_value(0.95) == pytest.approx(1.959964, abs=1e-6)


def test_samples_are_collapsed_to_queries_first() -> None:
    assert per_query([[1, 0], [1, math.nan], [math.nan, math.nan]]).tolist()[:2] == [0.5, 1.0]
    assert math.isnan(per_query([[math.nan]])[0])
    assert per_query([1.0, 2.0]).tolist() == [1.0, 2.0]


def test_sign_flips_are_enumerated_for_few_queries() -> None:
    d = np.array([0.5, 0.25, -0.125, 0.5, 0.0])
    sums = [abs(sum(s * x for s, x in zip(signs, d, strict=True))) for signs in itertools.product((-1, 1), repeat=5)]
    assert sign_flip_p_value(d) == np.mean([total >= abs(d.sum()) - 1e-12 for total in sums])


def test_sampled_sign_flips_agree_with_scipy() -> None:
    d = np.random.default_rng(3).normal(0.25, 1.0, 60)
    expected = stats.permutation_test(
        (d, np.zeros(60)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        n_resamples=9_999,
        vectorized=True,
        rng=np.random.default_rng(0),
    ).pvalue
    assert sign_flip_p_value(d) == pytest.approx(expected, abs=0.02)


def test_a_p_value_is_never_zero_and_no_difference_is_no_evidence() -> None:
    assert sign_flip_p_value(np.ones(200), resamples=999) == 1 / 1000
    assert sign_flip_p_value(np.zeros(30)) == 1.0
    assert sign_flip_p_value(np.zeros(3)) == 1.0


def test_equal_differences_leave_room_for_queries_that_were_not_seen() -> None:
    """Six of six solved by one arm only: the sign-flip test says p = .03, and the interval leaves 0 as well."""
    for n in range(2, 40):
        difference = paired_difference(np.ones(n), np.zeros(n))
        assert difference.high == 1.0 and (difference.low > 0) == (difference.p_value < 0.05), n
    assert paired_difference(np.ones(30), np.zeros(30)).low == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / 30)))
    assert paired_difference(np.full(4, 3.0), np.zeros(4), reach=math.inf)[1:3] == (-math.inf, math.inf)


def test_arms_are_apart_only_where_test_and_interval_say_so() -> None:
    assert surely_apart(0.01, 0.02, 0.3) and surely_apart(0.01, -0.3, -0.02)
    assert not surely_apart(0.2, 0.02, 0.3) and not surely_apart(0.01, -0.02, 0.3)
    assert not surely_apart(0.01, None, None)


def test_signs_drawn_in_parts_cover_every_resample() -> None:
    x = np.random.default_rng(0).normal(size=3_000)  # more than fits one part at 9,999 resamples
    assert sign_flip_p_value(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, abs=0.02)


def test_difference_pairs_arms_query_by_query() -> None:
    control = [[0, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    treatment = [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 1]]
    difference = paired_difference(treatment, control)
    assert difference.mean == pytest.approx(np.mean([0.5, 0.25, 0.5, 0.75, 0.0, 0.5]))
    assert 0 < difference.low < difference.mean < difference.high < 1
    assert difference.p_value == pytest.approx(2 / 32)  # five queries moved, all one way
    assert difference.n == 6
    assert difference == paired_difference(treatment, control)


def test_difference_leaves_out_queries_that_one_arm_has_no_sample_of() -> None:
    difference = paired_difference([1.0, math.nan, 1.0], [0.0, 0.0, 1.0])
    assert (difference.mean, difference.n) == (0.5, 2)


def test_one_value_says_nothing_and_equal_ones_that_have_no_bound_need_to_be_many() -> None:
    assert student_interval(np.array([0.4])) == (-1.0, 1.0)
    assert student_interval(np.array([0.4] * 3), reach=math.inf) == (-math.inf, math.inf)
    assert student_interval(np.array([0.4] * 40), reach=math.inf) == pytest.approx((0.4, 0.4))


def test_arms_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="same queries"):
        paired_difference([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="no query"):
        paired_difference([math.nan], [1.0])


def test_test_keeps_its_error_rate_where_effects_differ_between_queries() -> None:
    """30 queries, 16 samples each, mean effect 0 but different in each query. Pooling the samples
    rejects far too often; the per-query test keeps to 5 %."""
    rng = np.random.default_rng(11)
    rejected = pooled = 0
    for _ in range(300):
        base, effect = rng.normal(0, 1.5, 30), rng.normal(0, 1.0, 30)
        control = rng.random((30, 16)) < 1 / (1 + np.exp(-(base - effect / 2)))[:, None]
        treated = rng.random((30, 16)) < 1 / (1 + np.exp(-(base + effect / 2)))[:, None]
        d = treated.mean(axis=1) - control.mean(axis=1)
        rejected += sign_flip_p_value(d, resamples=499) <= 0.05
        p, q = treated.mean(), control.mean()
        pooled += abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 480) > 1.96
    assert rejected / 300 < 0.09
    assert pooled / 300 > 0.12
