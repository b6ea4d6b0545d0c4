"""The expected gain of further rollouts, beside the gain that they had in simulated worlds."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from training.algorithm.gain_of_more import gain_of_more, shrunk
from training.policies.effects import Effects

K, GROUP = 40, 4


def rollouts(rng: np.random.Generator, effects: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inclusions (N, K), rewards (N,) of 0 or 1, and groups (N,), N = groups * GROUP. Queries differ in difficulty."""
    z = rng.random((groups * GROUP, K)) < 0.5
    group = np.repeat(np.arange(groups), GROUP)
    base = np.repeat(rng.uniform(0.2, 0.6, groups), GROUP)
    chance = np.clip(base + (z - 0.5) @ effects, 0.0, 1.0)
    return z, (rng.random(len(z)) < chance).astype(np.float64), group


def world(seed: int, before: int, more: int) -> tuple[float, float, float, float]:
    """(expected gain, its interval, true gain) of ``more`` groups after ``before`` in a world of 40 lessons, of which
    some help and some harm."""
    rng = np.random.default_rng(seed)
    effects = np.where(rng.random(K) < 0.5, 0.0, rng.normal(0.0, 0.06, K))
    known = Effects()
    known.grow(K)
    tried = np.ones(K, dtype=np.bool_)
    known.learn(*rollouts(rng, effects, before), tried)
    first = known.estimate()
    expected, low, high = gain_of_more(*shrunk(first.beta, first.error, known.rollouts), float(more * GROUP))
    known.learn(*rollouts(rng, effects, more), tried)
    second = known.estimate()
    return expected, low, high, float(effects[second.beta > 0].sum() - effects[first.beta > 0].sum())


@pytest.mark.slow(reason="200 simulated runs")
def test_runs_with_a_high_figure_gain_more_than_runs_with_a_low_one() -> None:
    """Runs of 60 to 1,500 groups, each with 300 more. The difference is some four standard errors."""
    rng = np.random.default_rng(random.randrange(2**31))
    seen = np.array([world(int(rng.integers(2**31)), int(rng.integers(60, 1_500)), 300) for _ in range(200)])
    order = np.argsort(seen[:, 0])
    low, high = seen[order[:66], 3].mean(), seen[order[-66:], 3].mean()
    assert high > low, (low, high)
    # Half of the lessons do nothing, which the normal prior does not know: the figure is an upper one.
    assert 0.2 < seen[:, 3].mean() / seen[:, 0].mean() < 1.0
    covered = ((seen[:, 1] <= seen[:, 3]) & (seen[:, 3] <= seen[:, 2])).mean()
    assert covered > 0.85, covered


def test_the_figure_is_the_mean_gain_of_draws_from_the_posterior() -> None:
    rng = np.random.default_rng(4)
    mean, sd, known = np.array([0.05, -0.02, 0.3]), np.array([0.05, 0.08, 0.02]), np.array([400.0, 200.0, 900.0])
    more, n = 500.0, 400_000
    moves = sd * np.sqrt(more / (known + more))
    later = mean + moves * rng.standard_normal((n, 3))
    effect = later + np.sqrt(sd**2 - moves**2) * rng.standard_normal((n, 3))
    gains = (effect * ((later > 0).astype(float) - (mean > 0))).sum(axis=1)
    found = gain_of_more(mean, sd, known, more)
    assert found.expected == pytest.approx(gains.mean(), abs=4 * gains.std() / math.sqrt(n))
    assert found.high - found.expected == pytest.approx(1.96 * gains.std(), rel=0.02)


def test_nothing_is_expected_where_nothing_is_open() -> None:
    sure = gain_of_more(np.array([0.5, -0.5]), np.array([0.02, 0.02]), np.array([900.0, 900.0]), 900.0)
    assert sure.expected < 1e-12
    for mean, sd, known, more in ((0.1, 0.1, 100.0, 0.0), (0.1, 0.0, 100.0, 9.0), (0.1, 0.1, 0.0, 9.0)):
        assert gain_of_more(np.array([mean]), np.array([sd]), np.array([known]), more) == (0.0, 0.0, 0.0)
    assert gain_of_more(np.zeros(0), np.zeros(0), np.zeros(0), 100.0).expected == 0.0


def test_more_money_never_lets_expect_less() -> None:
    mean, sd, known = np.array([0.01, -0.03]), np.array([0.05, 0.06]), np.array([200.0, 300.0])
    figures = [gain_of_more(mean, sd, known, more).expected for more in (10.0, 100.0, 1_000.0, 1e6)]
    assert figures == sorted(figures) and figures[0] < figures[-1]
