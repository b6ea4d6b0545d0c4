"""Directed exploration: actions that failed on similar questions are drawn less often in training rollouts.

A group in which every rollout fails has (nearly) equal rewards: GRPO learns nothing from it, and
a whole kind of question can stay on a wrong tool for good. So the behaviour policy of training rollouts is

    pi_b(a | s)  proportional to  exp(z_a(s) - strength * sum_i e_i log(1 + failures[i, a]))

a count-based bonus over features (in the manner of phi-pseudocounts, Martin et al. 2017, arXiv 1706.08090), where
e_i is how characteristic term i of the question is of its kind. The second term is constant within an iteration and a
function of the state, so log-probabilities and gradients of pi_b are exact. A success on such questions halves their
counts: the bonus fades where it is no longer needed, and the policy has to succeed on its own. Evaluation and
production use pi without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from experiences.rollouts.types import Observation
from training.algorithm.arrays import FloatArray, IntArray
from training.policies.features import Encoding, FeatureOptions, TextEncoder

FORGET_BY_SUCCESS = 0.5  # of the failures of similar questions, for each rollout that succeeds
RECENCY = 0.8  # weight of the past in the success of similar questions, for each group


@dataclass(frozen=True, slots=True)
class PoolEvidence:
    """The questions of a pool as flat (hashed term, evidence) pairs; ``question`` is the index of each pair's
    question."""

    size: int
    question: IntArray
    ids: IntArray
    evidence: FloatArray

    @classmethod
    def of(cls, encoder: TextEncoder, queries: Sequence[str]) -> PoolEvidence:
        """Cached by its inputs: a job calls this in each of its slices, of some two seconds, and reading a thousand
        questions takes 0.05 s."""
        return _evidence(encoder.options, tuple(encoder.vocabulary.items()), encoder.documents, tuple(queries))


@lru_cache(maxsize=4)
def _evidence(
    options: FeatureOptions, vocabulary: tuple[tuple[str, int], ...], documents: int, queries: tuple[str, ...]
) -> PoolEvidence:
    encoder = TextEncoder(options, dict(vocabulary), documents)
    encodings = [encoder.encode(Observation(query, "", ())) for query in queries]
    return PoolEvidence(
        size=len(queries),
        question=np.repeat(np.arange(len(queries)), [len(encoding.ids) for encoding in encodings]),
        ids=np.concatenate([encoding.ids for encoding in encodings]),
        evidence=np.concatenate([encoding.evidence for encoding in encodings]),
    )


class FailureMemory:
    """Counts by hashed feature of the question: ``failures`` (D, A) of each action in groups without a success;
    ``groups`` (D,) and ``successes`` (D,), recency-weighted. Only ``tracked`` actions are counted."""

    def __init__(self, encoder: TextEncoder, tracked: Sequence[bool], strength: float) -> None:
        self.strength = strength
        self.tracked = tuple(tracked)
        self.failures = np.zeros((1 << encoder.options.bits, len(self.tracked)))
        self.groups = np.zeros(len(self.failures))
        self.successes = np.zeros(len(self.failures))
        self._logs = np.zeros_like(self.failures)  # log(1 + failures), kept beside it: it is read far more often
        self.encoder = encoder

    def offset(self, encoding: Encoding) -> FloatArray:
        """The amount added to the logits in a state: (A,), at most 0."""
        result: FloatArray = -self.strength * (encoding.evidence @ self._logs[encoding.ids])
        return result

    def success(self, pool: PoolEvidence) -> FloatArray:
        """Recency-weighted success rate of questions like each of the pool's, (n,) in [0, 1]; 0 where none was seen."""
        rate = self.successes / np.maximum(self.groups, 1e-9)
        weighted = pool.evidence * rate[pool.ids]
        return np.bincount(pool.question, weights=weighted, minlength=pool.size).astype(np.float64)

    def count_group(self, query: str, success_rate: float) -> None:
        """Takes in the success of one group."""
        ids = _given_ids(self._at_start(query))
        self.groups[ids] = RECENCY * self.groups[ids] + 1.0
        self.successes[ids] = RECENCY * self.successes[ids] + success_rate

    def count_failure(self, taken: Sequence[tuple[Observation, int]]) -> None:
        """Takes in a rollout of a group without any success: each distinct (kind of state, action) counts once."""
        seen: set[tuple[bytes, int]] = set()
        for observation, action in taken:
            ids = _given_ids(self.encoder.encode(observation))
            key = (ids.tobytes(), action)
            if self.tracked[action] and len(ids) and key not in seen:
                seen.add(key)
                self._set(ids, action, self.failures[ids, action] + 1.0)

    def count_success(self, taken: Sequence[tuple[Observation, int]]) -> None:
        """Takes in a rollout that succeeded: what it did is cleared, and half of all else is forgotten."""
        for observation, action in taken:
            self._set(_given_ids(self.encoder.encode(observation)), action, 0.0)
        if taken:
            ids = _given_ids(self._at_start(taken[0][0].query))
            self._set(ids, slice(None), self.failures[ids] * FORGET_BY_SUCCESS)

    def state_dict(self) -> dict[str, Any]:
        """Only the rows in use."""
        rows = np.flatnonzero(self.groups + self.failures.sum(axis=1))
        return {
            "rows": rows.astype(np.int32),
            "failures": self.failures[rows],
            "groups": self.groups[rows],
            "successes": self.successes[rows],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("failures", "groups", "successes"):
            table = getattr(self, name)
            table[:] = 0.0
            table[state["rows"]] = state[name]
        self._logs = np.log1p(self.failures)

    def _set(self, ids: IntArray, action: int | slice, counts: FloatArray | float) -> None:
        self.failures[ids, action] = counts
        self._logs[ids, action] = np.log1p(counts)

    def _at_start(self, query: str) -> Encoding:
        return self.encoder.encode(Observation(query, "", ()))


def _given_ids(encoding: Encoding) -> IntArray:
    ids: IntArray = encoding.ids[encoding.evidence > 0]
    return ids
