"""Log of a model's answers to a job's questions besides rollouts: each is stored at once, so that none is paid for
again after a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentcore_site.jobs.models import Job
from experiences.models import Question
from experiences.rollouts.structured_output import ModelAnswer

KEPT = (
    "key", "stage", "iteration", "asked", "usable", "reply", "reason", "repaired", "calls", "tokens", "cost_micros",
    "latency_ms", "own_ms", "model",
)  # fmt: skip
SAME: Final = "same"  # in place of a digest: the answer to a question that its name describes in full


class AnswerLog:
    """The questions of one job. Questions of iterations after ``after`` are read once, in the constructor: a checkpoint
    covers earlier ones, and they are not asked again. ``write`` runs a function that writes a row, fenced and in a
    thread of its own, since questions are asked on an event loop."""

    def __init__(
        self, job: Job, agent_id: Any, write: Callable[[Callable[[], None]], None], *, after: int = -1
    ) -> None:
        self._job, self._agent_id, self._write = job, agent_id, write
        self.epoch_of: Callable[[int], int] = lambda _: 1
        self._answered: dict[str, ModelAnswer] = {
            row["key"]: ModelAnswer(**row)
            for row in Question.objects.filter(job=job, iteration__gt=after).values(*KEPT)
        }

    def recall(self, key: str, asked: str) -> ModelAnswer | None:
        """The stored answer to this question; None if it was not asked, or if its text differed."""
        earlier = self._answered.get(key)
        return earlier if earlier is not None and earlier.asked in (asked, SAME) else None

    def copy(self, key: str, model: str) -> None:
        """Takes over a usable answer of this model to a question with this name, of any job of the organisation. It
        costs nothing here."""
        if key not in self._answered:
            self._write(lambda: self._copy(key, model))

    def _copy(self, key: str, model: str) -> None:
        same = Question.objects.filter(organization_id=self._job.organization_id, key=key, model=model, usable=True)
        if (found := same.order_by("-id").values(*KEPT).first()) is not None:
            copied = ModelAnswer(**found | {"calls": 0, "tokens": 0, "cost_micros": 0, "asked": SAME})
            self._store(copied)
            self._answered[key] = copied

    def keep(self, answered: ModelAnswer) -> None:
        """Writes an answer. One to the same question in other words takes its place."""
        self._write(lambda: self._store(answered))
        self._answered[answered.key] = answered

    def _store(self, answered: ModelAnswer) -> None:
        values = {name: getattr(answered, name) for name in KEPT if name != "key"}
        values |= {"agent_id": self._agent_id, "organization_id": self._job.organization_id}
        values["epoch"] = self.epoch_of(answered.iteration)
        Question.objects.update_or_create(job=self._job, key=answered.key, defaults=values)
