"""Estimates of an agent's earlier runs about its lessons, from which those of its next run begin.

Sums of rollouts can be added (``effects``), and the latest rollouts are kept (``evidence``). So what was paid for once
counts again: as much as on the day it was measured, or less where the agent has changed since.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from experiences.learning.lessons.library import Library
from training.algorithm.relevance import QueryEffects
from training.policies.archive import nested, pack, under, unpack
from training.policies.context import ContextPolicy
from training.policies.effects import Effects
from training.policies.evidence import RolloutEvidence
from training.policies.query_words import QueryWords


@dataclass(frozen=True)
class PriorEstimates:
    """Estimates of K lessons, by their ``handles`` and the ``versions`` of their texts: ``effects`` are sums over
    all rollouts, ``evidence`` the latest of these by ``words`` of their queries, and ``known`` (None: not stored) the
    effects by words."""

    handles: tuple[str, ...]
    versions: tuple[int, ...]
    effects: Effects
    words: QueryWords = field(default_factory=QueryWords)
    evidence: RolloutEvidence = field(default_factory=RolloutEvidence)
    known: QueryEffects | None = None

    @classmethod
    def of(cls, policy: ContextPolicy) -> Self:
        """The estimates of a run at its end."""
        lessons = policy.library.lessons
        handles, versions = [lesson.handle for lesson in lessons], [lesson.version for lesson in lessons]
        own = (policy.words, policy.evidence, policy.by_query()) if len(policy.evidence.reward) else ()
        return cls(tuple(handles), tuple(versions), policy.effects, *own)

    def only(self, library: Library) -> PriorEstimates:
        """The estimates for this library's lessons, each with its current text."""
        position = {one: at for at, one in enumerate(zip(self.handles, self.versions, strict=True))}
        same = [position[name] for lesson in library if (name := (lesson.handle, lesson.version)) in position]
        handles, versions = tuple(self.handles[at] for at in same), tuple(self.versions[at] for at in same)
        if self.known is None:
            kept = same == list(range(len(self.handles)))
            evidence = self.evidence if kept else RolloutEvidence()
            return PriorEstimates(handles, versions, self.effects.of_lessons(same), self.words, evidence)
        evidence, left = self.evidence.of_lessons(same, self.known), self._rest.of_lessons(same)
        return PriorEstimates(handles, versions, _joined(left, evidence), self.words, evidence)

    @property
    def _rest(self) -> Effects:
        """The sums of the rollouts that are no longer kept."""
        sums, (square, free) = self.evidence.sums(), self.evidence.scatter()
        every = self.effects
        gram, moment = every.gram - sums.gram.sum(axis=0), every.moment - sums.moment.sum(axis=0)
        return Effects(gram, moment, every.rollouts, max(every.square - square, 0.0), max(every.free - free, 0.0))

    def within(self, library: Library) -> Effects:
        """The sums in the library's order (K,); nothing is known of lessons that were not measured."""
        found, known = Effects(), self.only(library)
        found.grow(len(library))
        places = [library.position[handle] for handle in known.handles]
        found.gram[np.ix_(places, places)] = known.effects.gram
        found.moment[places] = known.effects.moment
        found.rollouts[places] = known.effects.rollouts
        found.square, found.free = known.effects.square, known.effects.free
        return found

    def evidence_within(self, library: Library, words: QueryWords) -> RolloutEvidence:
        """The rollouts in the library's order, by the words of another run."""
        known = self.only(library)
        if not (words.size and len(known.evidence.reward)):
            return RolloutEvidence()
        found = known.evidence.translated(self.words, words)
        places = [library.position[handle] for handle in known.handles]
        included = np.zeros((len(found.reward), len(library)), dtype=np.bool_)
        included[:, places] = found.included
        found.included = included
        return found

    def weighed(self, weight: float) -> PriorEstimates:
        """The estimates as if only this share of the rollouts had been made."""
        effects, evidence = self.effects.weighed(weight), self.evidence.weighed(weight)
        return PriorEstimates(self.handles, self.versions, effects, self.words, evidence, self.known)

    def as_json(self) -> dict[str, Any]:
        sums = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in self.effects.state_dict().items()
        }
        found = {"handles": list(self.handles), "versions": list(self.versions), "effects": sums}
        if len(self.evidence.reward):
            rollouts = nested("words", self.words.state_dict()) | nested("evidence", self.evidence.state_dict())
            found["rollouts"] = base64.b64encode(pack(rollouts)).decode()
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The estimates in a result of ``as_json``."""
        k, sums = len(value["handles"]), dict(value["effects"])
        sums["gram"] = np.reshape(sums["gram"], (k, k))
        known = (tuple(value["handles"]), tuple(value["versions"]), Effects.from_state_dict(sums))
        if "rollouts" not in value:  # earlier releases kept sums only
            return cls(*known)
        stored = unpack(base64.b64decode(value["rollouts"]))
        words = QueryWords.from_state_dict(under("words", stored))
        return cls(*known, words, RolloutEvidence.from_state_dict(under("evidence", stored)))


def _joined(left: Effects, evidence: RolloutEvidence) -> Effects:
    """The sums of rollouts that are kept and of those that are not."""
    sums, (square, free) = evidence.sums(), evidence.scatter()
    return Effects(
        left.gram + sums.gram.sum(axis=0),
        left.moment + sums.moment.sum(axis=0),
        left.rollouts,
        left.square + square,
        left.free + free,
    )
