"""GEPA's search (arXiv 2507.19457) as a pure function: from the answers so far to what it asks for next.

The optimiser is the package ``gepa``. It is deterministic given its seed and its answers. So a search goes on by a
replay from the start with the recorded answers, until an answer is missing. Nothing of the package's own state is
stored, and no rollout or question is paid for twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

COMPONENT: Final = "lessons"  # the one text that is optimised


@dataclass(frozen=True, slots=True)
class Evaluation:
    """GEPA asks for a score of ``text`` on each of these queries, by position in the training pool."""

    text: str
    queries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """GEPA asks for a better text than ``text``, by the rollouts of the evaluation just before."""

    text: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Progress of a search: its next request, the text with the highest mean score on the validation queries so far,
    and that score (before the first evaluation: the text that it began with, and 0)."""

    asks: Evaluation | Rewriting
    best: str
    score: float


@dataclass(frozen=True, slots=True)
class Search:
    """``train`` and ``validation`` are positions of queries; ``minibatch`` so many of ``train`` judge a new text before
    it is scored on ``validation``. ``start`` is the text to begin with. Scores lie in [0, 1]."""

    start: str
    train: tuple[int, ...]
    validation: tuple[int, ...]
    minibatch: int
    seed: int

    def standing(self, answers: Sequence[Sequence[float] | str]) -> Standing:
        """The search after these answers, in their order: scores for an evaluation, a text for a rewriting ("": no
        other text). Takes about 1 ms for each answer."""
        from gepa.api import optimize  # a part of a second, which only a worker with such a job spends

        replay: Any = _Replay(iter(answers), self.start)
        with suppress(_Unanswered):
            optimize(
                seed_candidate={COMPONENT: self.start},
                trainset=list(self.train),
                valset=list(self.validation),
                adapter=replay,
                reflection_minibatch_size=min(self.minibatch, len(self.train)),
                stop_callbacks=lambda _: False,  # it ends where its answers end
                callbacks=[replay],
                logger=replay,
                seed=self.seed,
            )
        return Standing(replay.asks, replay.best, replay.score)


class _Unanswered(BaseException):
    """Leaves the optimiser at its first open request. Its handlers of ``Exception`` must not take this for a failure
    of one proposal."""


class _Replay:
    """GEPA's adapter, callback and log in one: gives recorded answers. ``asks`` is the request without an answer."""

    asks: Evaluation | Rewriting

    def __init__(self, answers: Iterator[Any], start: str) -> None:
        self._answers = answers
        self.best, self.score = start, 0.0

    def evaluate(self, batch: list[int], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        scores = next(self._answers, None)
        if scores is None:
            self.asks = Evaluation(candidate[COMPONENT], tuple(batch))
            raise _Unanswered
        return EvaluationBatch(outputs=list(batch), scores=list(scores), trajectories=list(batch))

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {COMPONENT: []}  # the rollouts are with the learner, which answers the rewriting

    def propose_new_texts(
        self, candidate: dict[str, str], reflective_dataset: Any, components_to_update: list[str]
    ) -> dict[str, str]:
        text = next(self._answers, None)
        if text is None:
            self.asks = Rewriting(candidate[COMPONENT])
            raise _Unanswered
        return {COMPONENT: text} if text else {}

    def on_valset_evaluated(self, event: Any) -> None:
        if event["is_best_program"]:
            self.best, self.score = event["candidate"][COMPONENT], float(event["average_score"])

    def log(self, message: str) -> None:
        """Says nothing: what happens is in the job's own records."""
