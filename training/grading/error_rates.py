"""Error rates of a grader from a sample that people judged. Pure.

The false-positive rate is the share of the wrong answers that the grader called right, the false-negative rate the
share of the right answers that it called wrong. Intervals are Wilson's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentcore_site.lib.statistics import Interval, wilson_interval


@dataclass(frozen=True, slots=True)
class GraderErrors:
    """Counts of a scorer on a data set. ``right`` and ``wrong`` are people's; ``skipped`` answers were left open."""

    scorer: str
    right: int
    wrong: int
    false_negatives: int
    false_positives: int

    @property
    def judged(self) -> int:
        return self.right + self.wrong

    @property
    def false_positive_rate(self) -> float | None:
        return self.false_positives / self.wrong if self.wrong else None

    @property
    def false_negative_rate(self) -> float | None:
        return self.false_negatives / self.right if self.right else None

    @property
    def false_positive_interval(self) -> Interval:
        return wilson_interval(self.false_positives, self.wrong)

    @property
    def false_negative_interval(self) -> Interval:
        return wilson_interval(self.false_negatives, self.right)


def grader_errors(scorer: str, judged: Iterable[tuple[bool, bool]]) -> GraderErrors:
    """``judged``: (the grader's verdict, the person's) of each answer."""
    pairs = list(judged)
    return GraderErrors(
        scorer,
        right=sum(right for _, right in pairs),
        wrong=sum(not right for _, right in pairs),
        false_negatives=sum(right and not graded for graded, right in pairs),
        false_positives=sum(graded and not right for graded, right in pairs),
    )
