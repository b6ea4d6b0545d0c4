"""What a report's statistics promise."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from evaluation.statistics import (
    benjamini_hochberg,
    cohens_d,
    cohens_h,
    holm,
    mcnemar,
    minimum_detectable_effect,
    pass_at_k,
    power_of_paired_test,
)


def flips(gained: int, lost: int, same: int = 10) -> tuple[list[int], list[int]]:
    return [0] * gained + [1] * lost + [1] * same, [1] * gained + [0] * lost + [1] * same


@pytest.mark.parametrize(("gained", "p"), [(5, 0.0625), (6, 0.03125)])
def test_mcnemar_needs_six_one_way_flips_for_five_percent(gained: int, p: float) -> None:
    found = mcnemar(*flips(gained, 0))
    assert found.p_value == pytest.approx(p)
    assert found.mid_p == pytest.approx(p / 2)
    assert (found.gained, found.lost) == (gained, 0)


def test_mcnemar_is_symmetric_and_silent_without_flips() -> None:
    baseline, trained = flips(7, 2)
    assert mcnemar(baseline, trained).p_value == mcnemar(trained, baseline).p_value
    assert mcnemar([1, 0], [1, 0]) == (0, 0, 1.0, 1.0)
    with pytest.raises(ValueError, match="same queries"):
        mcnemar([1], [1, 0])


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]).shape == (0,)


def test_the_false_discovery_correction_is_scipys() -> None:
    p = np.random.default_rng(0).random(20)
    assert benjamini_hochberg(p.tolist()) == pytest.approx(stats.false_discovery_control(p))


def test_holm_keeps_the_family_wise_error() -> None:
    rng = np.random.default_rng(1)
    false_alarms = sum(bool((holm(rng.random(6).tolist()) < 0.05).any()) for _ in range(2_000))
    assert false_alarms / 2_000 < 0.065


def test_effect_sizes_are_the_textbooks() -> None:
    assert cohens_d([1.0, 2.0, 3.0]) == pytest.approx(2.0)
    assert cohens_d([0.0, 0.0]) == 0.0
    assert cohens_d([0.5, 0.5]) == math.inf
    assert cohens_d([-0.5, -0.5]) == -math.inf
    assert cohens_h(0.5, 0.5) == 0.0
    assert cohens_h(1.0, 0.0) == pytest.approx(math.pi)


def test_pass_at_k_is_the_share_of_draws_with_a_hit() -> None:
    assert pass_at_k(8, 0, 4) == 0.0
    assert pass_at_k(8, 8, 1) == 1.0
    assert pass_at_k(8, 2, 1) == pytest.approx(0.25)
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    assert pass_at_k(4, 3, 2) == 1.0
    with pytest.raises(ValueError, match="k must lie in"):
        pass_at_k(4, 1, 5)


def test_the_detectable_effect_is_2_8_standard_errors_and_has_80_percent_power() -> None:
    effect = minimum_detectable_effect(0.4, 100)
    assert effect == pytest.approx(2.8 * 0.04, abs=1e-3)
    assert power_of_paired_test(effect, 0.4, 100) == pytest.approx(0.8, abs=1e-4)
    assert minimum_detectable_effect(0.4, 1) == math.inf


def test_power_is_alpha_without_an_effect_and_grows_with_the_sample() -> None:
    assert power_of_paired_test(0.0, 0.4, 50) == pytest.approx(0.05)
    assert power_of_paired_test(0.15, 0.4, 80) > power_of_paired_test(0.15, 0.4, 20)
    assert power_of_paired_test(0.15, 0.0, 20) == 1.0
    assert power_of_paired_test(0.0, 0.0, 20) == 0.05


def test_it_leaves_scipy_alone_until_it_is_needed() -> None:
    code = "import sys, evaluation.statistics; print(any(name.split('.')[0] == 'scipy' for name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
