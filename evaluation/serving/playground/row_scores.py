"""Verdicts on the playground's answers to rows of a dataset, and the totals of a candidate."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from agentcore_site.ids import uuid7
from agentcore_site.lib.statistics import wilson_interval
from budgets.llm.types import Completion, Message, ToolSpec
from budgets.meter_port import CallKey
from evaluation.serving.gateway.served_models import ServedModel
from evaluation.serving.playground.trials import Trial, trial_answer
from experiences.privacy import redact
from experiences.rollouts.environments.scorers import Check, Rubric
from experiences.rollouts.judge import JUDGE_TOKENS, Judge
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm.calls import CallOptions, ModelFailure, Sampling
from experiences.rollouts.types import Outcome

LONGEST: Final = 500  # characters of a reason


@dataclass(frozen=True)
class RowScore:
    """A verdict: ``success`` and ``score`` (from 0 to 1) are None where there is none. ``cost_micros``: the judge's."""

    success: bool | None = None
    score: float | None = None
    why: str = ""
    cost_micros: int = 0


@dataclass(frozen=True)
class CellFigures:
    """Figures of one answer. ``seconds``: without the judge's."""

    answered: bool
    success: bool | None
    score: float | None
    cost_micros: int
    seconds: float


@dataclass(frozen=True)
class CandidateTotal:
    """Of a candidate's answers that ended. ``right`` of ``judged``, with its 95 % interval by Wilson. ``unanswered``
    and ``unjudged`` count in none of both. ``seconds``: the mean of an answer."""

    asked: int
    judged: int
    right: int
    low: float
    high: float
    score: float | None
    unanswered: int
    unjudged: int
    cost_micros: int
    seconds: float | None

    @property
    def rate(self) -> float | None:
        return self.right / self.judged if self.judged else None

    @property
    def graded(self) -> bool:
        """True if scores lie between right and wrong, so that their mean says more than the rate."""
        return self.score is not None and self.score != self.rate


def candidate_total(cells: Sequence[CellFigures]) -> CandidateTotal:
    judged = [one for one in cells if one.success is not None]
    answered = [one for one in cells if one.answered]
    right = sum(one.success is True for one in judged)
    low, high = wilson_interval(right, len(judged))
    scores = [one.score for one in judged if one.score is not None]
    return CandidateTotal(
        asked=len(cells),
        judged=len(judged),
        right=right,
        low=low,
        high=high,
        score=statistics.fmean(scores) if scores else None,
        unanswered=len(cells) - len(answered),
        unjudged=len(answered) - len(judged),
        cost_micros=sum(one.cost_micros for one in cells),
        seconds=statistics.fmean(one.seconds for one in answered) if answered else None,
    )


@dataclass
class TrialModel:
    """``ChatModel`` of a judge whose calls are trials: held, settled and traced. All of them together cost
    ``most_micros`` at most."""

    model: ServedModel
    most_micros: int
    spent_micros: int = field(default=0, init=False)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        tools: Sequence[ToolSpec] | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        """Raises ModelFailure: there is no answer."""
        body: dict[str, Any] = {
            "model": self.model.name,
            "messages": [{"role": one.role, "content": one.content} for one in messages],
            "max_tokens": max_tokens,
        }
        given = {"temperature": temperature, "seed": seed, "response_format": options.get("response_format")}
        body |= {name: value for name, value in given.items() if value is not None}
        trial = Trial(uuid7(), self.model, body, max(0, self.most_micros - self.spent_micros))
        found = await trial_answer(trial, lambda _: None)
        self.spent_micros += found.cost_micros
        if found.error or found.completion is None:
            raise ModelFailure(found.error or "the judge said nothing")
        return found.completion


async def row_score(
    answer: str, query: str, check: Check, *, rubric: Rubric | None, judge: ServedModel | None, most_micros: int
) -> RowScore:
    """The verdict on an answer: by the row's own check, or of the judge where it has a ``rubric``."""
    if rubric is None:
        return _score(await asyncio.to_thread(_checked, check, answer), 0)
    if judge is None:
        return RowScore(why="No judge was chosen.")
    model = TrialModel(judge, most_micros)
    try:
        judging = Judge(model, Sampling(judge.upstreams[0].priced, 0.0, JUDGE_TOKENS), threshold=rubric.threshold)
        found = await judging.grade(query, answer, rubric.text, rubric.reference)
    except Halted as halted:
        return RowScore(why=redact(str(halted), limit=LONGEST), cost_micros=model.spent_micros)
    return _score(found, model.spent_micros)


def _checked(check: Check, answer: str) -> Outcome:
    try:
        return check(answer)
    except Exception as error:  # some verifiers raise on answers of an unexpected form
        return Outcome(0.0, False, {"scorer_error": f"{type(error).__name__}: {error}"})


def _score(found: Outcome, cost_micros: int) -> RowScore:
    evidence = found.evidence
    judge = evidence.get("judge")
    reason = judge.get("reason") if isinstance(judge, dict) else None
    named = (evidence.get("judge_error"), evidence.get("scorer_error"), evidence.get("why"), reason)
    why = redact(next((str(one) for one in named if one), ""), limit=LONGEST)
    if evidence.get("judge_error"):
        return RowScore(why=why, cost_micros=cost_micros)
    return RowScore(found.success, found.score, why, cost_micros)
