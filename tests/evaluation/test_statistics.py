"""The statistics of reports."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from agentcore_site.lib.statistics import finite_or_none
from evaluation.statistics import holm, minimum_detectable_effect


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]).shape == (0,)


def test_holm_keeps_the_family_wise_error() -> None:
    rng = np.random.default_rng(1)
    false_alarms = sum(bool((holm(rng.random(6).tolist()) < 0.05).any()) for _ in range(2_000))
    assert false_alarms / 2_000 < 0.065


def test_the_detectable_effect_is_2_8_standard_errors_and_has_80_percent_power() -> None:
    effect = minimum_detectable_effect(0.4, 100)
    assert effect == pytest.approx(2.8 * 0.04, abs=1e-3)
    assert stats.norm.cdf(effect / 0.04 - stats.norm.ppf(0.975)) == pytest.approx(0.8, abs=1e-4)
    assert minimum_detectable_effect(0.4, 1) == math.inf


def test_statistics_import_scipy_only_on_first_use() -> None:
    code = "import sys, evaluation.statistics; print(any(name.split('.')[0] == 'scipy' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_two_queries_are_enough_for_an_effect_and_what_is_not_measured_is_null() -> None:
    assert minimum_detectable_effect(0.4, 2) == pytest.approx(2.8016 * 0.4 / math.sqrt(2), abs=1e-3)
    assert finite_or_none(0.5) == 0.5
    assert [finite_or_none(one) for one in (math.nan, math.inf, -math.inf)] == [None] * 3
