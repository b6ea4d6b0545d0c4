"""Paired drop-outs of a release's lessons, and the outcome of each lesson. Pure.

A pair is two plays of one query. Each lesson of that query is in the context of exactly one of the two, by chance and
independently of the others: so all lessons are measured by the same plays, at half of them each. Effects are estimated
as in training (``training.policies.effects``). Intervals are Student's, for all lessons at once (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from agentcore_site.lib.figures import counted
from agentcore_site.lib.statistics import z_value
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.types import RolloutKey
from training.algorithm.arrays import BoolArray
from training.algorithm.inference import ALPHA, student_of_normal
from training.policies.effects import Effects
from training.policies.inclusion import balanced
from training.policies.served_context import ServedContext, prompt_context

MEMBERS: Final = 2  # plays of a pair
MARGIN: Final = 0.05  # a difference of rewards below which it does not matter, as in reports of evaluations
DROP_OUT_STREAM: Final = 11  # of random numbers: contexts of training are drawn from stream 7

Outcome = Literal["survives", "neutral", "harms"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("harms", "survives", "neutral")
NO_DIFFERENCE: Final = "makes no difference that matters"
TOO_FEW: Final = "too few to say"


class PairKey(NamedTuple):
    """A pair: the query's ``scenario``, and the ``number`` of the pair among those of this query."""

    scenario: int
    number: int

    @property
    def members(self) -> tuple[RolloutKey, RolloutKey]:
        first = MEMBERS * self.number
        return RolloutKey(0, self.scenario, first), RolloutKey(0, self.scenario, first + 1)


@dataclass(frozen=True)
class PairResult:
    """A pair's ``rewards``; NaN where a play could not be graded."""

    key: PairKey
    query: str
    rewards: tuple[float, float]


@dataclass(frozen=True)
class DropOuts:
    """The context of a release with lessons left out, as a policy that plays it. The same seed leaves out the same."""

    context: ServedContext
    seed: int

    @property
    def version(self) -> str:
        return self.context.version

    def included(self, pair: PairKey, query: str) -> BoolArray:
        """The lessons (2, K) in the contexts of both plays, in the order of the release."""
        handles = set(self.context.choice.handles_for(query))
        served = np.array([lesson.handle in handles for lesson in self.context.lessons], dtype=np.bool_)
        rng = np.random.default_rng((DROP_OUT_STREAM, self.seed, pair.scenario, pair.number))
        drawn: BoolArray = balanced(rng, np.full(len(served), 0.5), MEMBERS) & served
        return drawn

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        number, member = divmod(key.rollout, MEMBERS)
        inside = self.included(PairKey(key.scenario, number), query)[member]
        return prompt_context([lesson for lesson, kept in zip(self.context.lessons, inside, strict=True) if kept])


def pairs_planned(selection: Sequence[int], training: Sequence[int], most: int, seed: int) -> list[PairKey]:
    """``most`` pairs on the scenarios of both pools, in order of play: the selection queries come first, since no
    lesson was learned from them, and each query once before any twice."""
    rng = np.random.default_rng((DROP_OUT_STREAM, seed))
    order = [int(one) for pool in (selection, training) for one in rng.permutation(np.array(pool, dtype=np.int64))]
    return [PairKey(order[at % len(order)], at // len(order)) for at in range(most if order else 0)]


@dataclass(frozen=True, slots=True)
class LessonSurvival:
    """A lesson on the other model: its ``effect`` on the reward with an interval that holds for all lessons at once,
    and the number of ``pairs`` that measured it."""

    handle: str
    pairs: int
    effect: float
    low: float
    high: float
    alike: int = 0  # pairs that are needed before equal rewards say anything; see ``pairs_until_seen``

    @property
    def outcome(self) -> Outcome:
        if self.pairs and self.low > 0:
            return "survives"
        return "harms" if self.pairs and self.high < 0 else "neutral"

    @property
    def words(self) -> str:
        """The outcome, and of a neutral lesson whether enough was seen."""
        if self.outcome != "neutral":
            return self.outcome
        near = self.pairs >= self.alike and max(-self.low, self.high) <= MARGIN
        return NO_DIFFERENCE if near else TOO_FEW

    def as_json(self) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "outcome": self.outcome,
            "words": self.words,
            "effect": round(self.effect, 6),
            "low": round(self.low, 6) if math.isfinite(self.low) else None,
            "high": round(self.high, 6) if math.isfinite(self.high) else None,
            "pairs": self.pairs,
        }


def survival_of(drop_outs: DropOuts, results: Iterable[PairResult]) -> list[LessonSurvival]:
    """Each lesson of the release, in its order. Pairs of which a play could not be graded are left out."""
    lessons, known = drop_outs.context.lessons, [one for one in results if np.isfinite(one.rewards).all()]
    effects = Effects()
    effects.grow(len(lessons))
    if known:
        included = np.concatenate([drop_outs.included(one.key, one.query) for one in known])
        reward = np.array([one.rewards for one in known], dtype=np.float64).reshape(-1)
        effects.learn(
            included,
            reward,
            np.repeat(np.arange(len(known)), MEMBERS),
            np.asarray(included.any(axis=0), dtype=np.bool_),
        )
    found = effects.estimate()
    tried = max(int((found.information > 0).sum()), 1)
    share = ALPHA / max(len(lessons), 1)
    width = student_of_normal(z_value(1 - share), max(int(effects.free) - tried, 1))
    rows = zip(lessons, found.beta, width * found.error, found.information, strict=True)
    return [
        LessonSurvival(
            lesson.handle,
            round(MEMBERS * float(information)),
            float(effect) + 0.0,
            float(effect - half),
            float(effect + half),
            pairs_until_seen(share),
        )
        for lesson, effect, half, information in rows
    ]


def pairs_until_seen(share: float) -> int:
    """Pairs after which a lesson that moves one reward in twenty has shown so at least once, but for a two-sided error
    of ``share`` (the rule of three): fewer equal rewards are no evidence of equality."""
    return math.ceil(math.log(share / 2) / math.log(1 - MARGIN))


def verdict_of(found: Sequence[LessonSurvival], model: str) -> str:
    """One sentence, to be shown above all figures."""
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in OUTCOMES}
    flat = sum(one.words == NO_DIFFERENCE for one in found)
    parts = list(_parts(counts["survives"], counts["harms"], flat, counts["neutral"] - flat))
    return f"Of {counted(len(found), 'lesson')} on {model}: {', '.join(parts)}."


def _parts(survive: int, harm: int, flat: int, unknown: int) -> Iterator[str]:
    yield f"{survive} survive{'s' if survive == 1 else ''}"
    yield f"{harm} harm{'s' if harm == 1 else ''}"
    if flat:
        yield f"{flat} make{'s' if flat == 1 else ''} no difference that matters"
    if unknown:
        yield f"for {unknown} there are too few plays to say"
