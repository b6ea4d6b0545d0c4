"""Error rates of a grader, by hand."""

from __future__ import annotations

import pytest

from training.grading.error_rates import grader_errors


def test_rates_are_of_the_answers_that_people_called_so() -> None:
    """30 right answers of which the grader fails 3, 20 wrong ones of which it passes 1."""
    pairs = [(True, True)] * 27 + [(False, True)] * 3 + [(False, False)] * 19 + [(True, False)]
    found = grader_errors("exact", pairs)
    assert (found.judged, found.right, found.wrong) == (50, 30, 20)
    assert (found.false_negatives, found.false_positives) == (3, 1)
    assert (found.false_negative_rate, found.false_positive_rate) == (0.1, 0.05)
    # Wilson's interval of 1 of 20 and 3 of 30, by its formula.
    assert found.false_positive_interval == pytest.approx((0.0089, 0.2361), abs=1e-4)
    assert found.false_negative_interval == pytest.approx((0.0346, 0.2562), abs=1e-4)


def test_without_an_answer_of_a_kind_its_rate_is_unknown() -> None:
    found = grader_errors("exact", [(True, True)])
    assert (found.false_positive_rate, found.false_positive_interval) == (None, (0.0, 1.0))
    assert found.false_negative_rate == 0.0
