"""Failed rollouts of a job by class: the service refused, or cut the prompt, the time was over, and so on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Count, Max, Q, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from experiences.models import GroupRecord, Question, TrajectoryRecord
from training.learners.context_update import nothing_to_learn
from training.models import Iteration, TrainingRun

CLASSES: Final = {
    "refused": "were refused by the model's service",
    "cut": "lost a part of their prompt at the model's service",
    "timeout": "ran out of time",
    "environment": "failed in the environment",
    "reward": "could not be graded",
    "agent": "failed in the agent",
    "model": "got no answer that can be used",
}
OTHER: Final = "failed for another reason"
WORDS: Final = 300  # characters of an error that are shown


@dataclass(frozen=True)
class FailedRollouts:
    """Counts of the rollouts that failed, of ``total``, by class; ``words``: an error of the largest class."""

    total: int = 0
    by_class: Counter[str] = field(default_factory=Counter)
    words: str = ""

    @property
    def failed(self) -> int:
        return sum(self.by_class.values())

    @property
    def all_failed(self) -> bool:
        return 0 < self.total == self.failed

    @property
    def verdict(self) -> str:
        """The sentence of a run of which nothing could be learned; "" for others."""
        if not self.all_failed:
            return ""
        name, n = self.by_class.most_common(1)[0]
        if n == self.total:
            said = f"{n:,} of {n:,} rollouts {CLASSES.get(name, OTHER)}."
            return f"Nothing could be learned: {said} {self._latest}".rstrip()
        return f"Nothing could be learned: {self.total:,} of {self.total:,} rollouts failed. {self.sentence()}"

    @property
    def _latest(self) -> str:
        return f"The latest words: {self.words}" if self.words else ""

    def sentence(self) -> str:
        """Counts in words; "" where none failed."""
        parts = [f"{n:,} {CLASSES.get(name, OTHER)}" for name, n in self.by_class.most_common()]
        if not parts:
            return ""
        return f"Of {self.total:,} rollouts {', '.join(parts)}. {self._latest}".rstrip()


def failed_rollouts(run: TrainingRun) -> FailedRollouts:
    """The failed rollouts of the run's training, and those that no grader could score. One query."""
    boundary = RawSQL("split_part(experiences_trajectory.error, ':', 1)", (), output_field=TextField())
    rows = TrajectoryRecord.objects.filter(job_id=run.pk, purpose="training").order_by()
    ungraded = Count("id", filter=Q(error="", evidence__has_key="judge_error"))
    found: list[dict[str, Any]] = list(
        rows.annotate(boundary=boundary)
        .values("boundary")
        .annotate(n=Count("id"), ungraded=ungraded, words=Max(Cast("error", TextField())))
    )
    by_class: Counter[str] = Counter()
    for one in found:
        if one["boundary"]:
            by_class[one["boundary"]] += one["n"]
        elif one["ungraded"]:
            by_class["reward"] += one["ungraded"]
    largest = by_class.most_common(1)[0][0] if by_class else ""
    words = next((one["words"] for one in found if one["boundary"] == largest), "").partition(": ")[2]
    return FailedRollouts(sum(one["n"] for one in found), by_class, words[:WORDS])


def without_signal(run: TrainingRun) -> str:
    """A sentence about a run in which no group of attempts differed in its rewards; "" for others."""
    groups = GroupRecord.objects.filter(job_id=run.pk)
    if groups.filter(has_signal=True).exists() or not (n := groups.count()):
        return ""
    if n == 1:
        same = "The attempts at its query all had the same reward"
    else:
        same = f"In each of {n:,} groups all attempts at a query had the same reward"
    return (
        f"{same}, so that there was nothing to compare. Add queries at which the agent succeeds only sometimes, or"
        " raise the temperature, where the service takes one."
    )


def stopped_without_signal(run: TrainingRun) -> str:
    """A sentence about a run that stopped before its last iteration since rewards were equal; "" for others."""
    last = Iteration.objects.filter(run=run).order_by("-number").values_list("number", "metrics").first()
    if last is None or last[0] >= run.total_iterations:
        return ""
    equal = int(last[1].get("equal_groups") or 0)
    if not nothing_to_learn(equal, run.configuration):
        return ""
    return (
        f"The job stopped after {last[0]:,} of {run.total_iterations:,} iterations and spent nothing on the others: in"
        f" {equal:,} groups in a row all attempts at a query had the same reward."
    )


def unanswered(run: TrainingRun) -> str:
    """A sentence about a run whose reflector gave no usable answer at all; "" for others."""
    rows = Question.objects.filter(job_id=run.pk)
    if rows.filter(usable=True).exists() or not (n := rows.count()):
        return ""
    latest = rows.order_by("-at").values_list("reason", flat=True).first()
    asked = f"The model that reflects on attempts gave no usable answer to {n:,} question{'' if n == 1 else 's'}"
    return f"{asked}, so that no lesson could be drawn. The latest reason: {latest}"
