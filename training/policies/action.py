"""The ``action`` policy: a softmax over actions from hashed text features, NumPy only.

logits = x W with W (features, A), zero at first, so that the untrained policy is uniform over what is allowed.
Log-probabilities are exact and gradients analytic: d log pi(a) / d z_j = [j = a] - pi_j, and
dH / d z_j = -pi_j (log pi_j + H). Features get a row of W when they are first trained on, so that the arrays,
the optimiser and the checkpoint hold only what is in use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from experiences.rollouts.types import ActionSpec, Observation
from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.optimizers import Arrays
from training.policies.base import Decision
from training.policies.exploration import FailureMemory
from training.policies.features import STATUSES, Encoding, FeatureOptions, TextEncoder, own_history

_UNSEEN = 0  # row 0 stays zero: it is used for every feature that was never trained on
_CHOICES_LIMIT = 50_000
MOST_BITS = 20  # as FeatureConfig allows
_IMPOSSIBLE = -1e30  # logit of a masked action: exp() is exactly 0


@dataclass(frozen=True, slots=True)
class _Choices:
    """A state's distribution, ready to draw from."""

    indices: list[int]
    cumulative: list[float]
    logp: list[float]


_Cache = dict[tuple[Observation, float], _Choices]


@dataclass(frozen=True, slots=True)
class EncodedActions:
    """M decisions in U distinct states. ``design`` (U, R) holds the features over the ``rows`` (R,) of W that
    occur; ``state`` (M,) and ``action`` (M,) index states and actions; ``allowed`` (U, A) or None; ``own``
    (U, statuses, A) marks which actions were done before and how, or None; ``offset`` (U, A) is added to the logits of
    the policy that acted (see ``exploration``), or None."""

    design: FloatArray
    rows: IntArray
    state: IntArray
    action: IntArray
    allowed: BoolArray | None
    own: FloatArray | None
    offset: FloatArray | None = None

    @property
    def features(self) -> FloatArray:
        return self.design[self.state]

    @property
    def feature_ids(self) -> IntArray:
        return self.rows


class ActionEvaluation:
    """Log-probabilities and entropies (M,) of encoded decisions, and their gradient by W."""

    def __init__(self, encoded: EncodedActions, weights: FloatArray, own: FloatArray, temperature: float) -> None:
        self._encoded, self._temperature, self._shape = encoded, temperature, weights.shape
        logits = encoded.design @ weights[encoded.rows]
        if encoded.own is not None:
            logits += np.einsum("usa,s->ua", encoded.own, own)
        if encoded.offset is not None:
            logits += encoded.offset
        logits /= temperature
        if encoded.allowed is not None:
            logits = np.where(encoded.allowed, logits, _IMPOSSIBLE)
        logits -= logits.max(axis=1, keepdims=True)
        self._pi = np.exp(logits)
        total = self._pi.sum(axis=1, keepdims=True)
        self._pi = self._pi / total
        self._log_pi = np.maximum(logits - np.log(total), _IMPOSSIBLE)
        self._entropy = -np.einsum("ua,ua->u", self._pi, self._log_pi)
        self.logp: FloatArray = self._log_pi[encoded.state, encoded.action]
        self.entropy: FloatArray = self._entropy[encoded.state]

    def backward(self, d_logp: FloatArray, d_entropy: FloatArray) -> Arrays:
        """Gradient of sum(d_logp * logp + d_entropy * entropy): {"weights": (rows of W, A)}."""
        encoded, (states, actions) = self._encoded, self._pi.shape
        cell = encoded.state * actions + encoded.action
        direct = np.bincount(cell, weights=d_logp, minlength=states * actions)
        d_logits: FloatArray = direct.astype(np.float64).reshape(states, actions)
        d_logits -= np.bincount(encoded.state, weights=d_logp, minlength=states)[:, None] * self._pi
        pull = np.bincount(encoded.state, weights=d_entropy, minlength=states)[:, None]
        d_logits -= pull * self._pi * (self._log_pi + self._entropy[:, None])
        d_logits /= self._temperature
        gradient = np.zeros(self._shape)
        gradient[encoded.rows] = encoded.design.T @ d_logits
        gradients = {"weights": gradient}
        if encoded.own is not None:
            gradients["own"] = np.einsum("usa,ua->s", encoded.own, d_logits)
        return gradients


class ActionPolicy:
    """A linear softmax policy over a fixed list of actions."""

    kind = "action"

    def __init__(self, actions: Sequence[str], encoder: TextEncoder, *, version: str = "0") -> None:
        self.actions = tuple(actions)
        self.encoder = encoder
        self.version = version
        self.parameters: Arrays = {"weights": np.zeros((1, len(self.actions))), "own": np.zeros(len(STATUSES))}
        self.reference: Arrays = {name: value.copy() for name, value in self.parameters.items()}
        self._index = {name: i for i, name in enumerate(self.actions)}
        self._row_of = np.zeros(1 << encoder.options.bits, dtype=np.int64)
        self._ids: list[int] = []  # hashed id of row 1, 2, ...
        self._choices: _Cache = {}

    @classmethod
    def fresh(
        cls, actions: Sequence[ActionSpec], options: FeatureOptions, queries: Sequence[str], *, version: str = "0"
    ) -> ActionPolicy:
        """The untrained policy; ``queries`` are the training questions, from which its vocabulary is taken."""
        return cls([action.name for action in actions], TextEncoder.fitted(options, queries), version=version)

    @property
    def weights(self) -> FloatArray:
        return self.parameters["weights"]

    def choose(self, observation: Observation, rng: np.random.Generator, *, temperature: float) -> tuple[int, float]:
        return _drawn(self._choices, self, observation, rng, temperature, None)

    def exploring(self, memory: FailureMemory) -> ExploringPolicy:
        """This policy as it acts in training rollouts. Valid until the parameters or the memory change."""
        return ExploringPolicy(self, memory)

    def probabilities(self, observation: Observation, *, temperature: float = 1.0) -> FloatArray:
        """pi(a | observation) of every action, (A,); 0 where masked."""
        choices = self.distribution(observation, temperature)
        result = np.zeros(len(self.actions))
        result[choices.indices] = np.exp(choices.logp)
        return result

    def encode(self, decisions: Sequence[Decision], memory: FailureMemory | None = None) -> EncodedActions:
        """Turns decisions into arrays. Features that are new to the policy get their (zero) row of W here.
        ``memory`` is that of the exploring policy which made the decisions."""
        states: dict[tuple[Any, ...], int] = {}
        observations: list[Observation] = []
        state = np.empty(len(decisions), dtype=np.int64)
        for i, decision in enumerate(decisions):
            at = states.setdefault(decision.observation, len(states))
            if at == len(observations):
                observations.append(decision.observation)
            state[i] = at
        encodings = [self.encoder.encode(observation) for observation in observations]
        design, rows = self._design(encodings)
        action = np.fromiter((decision.choice for decision in decisions), dtype=np.int64, count=len(decisions))
        own = None
        if self.encoder.options.own_history:
            own = np.zeros((len(observations), len(STATUSES), len(self.actions)))
            for at, observation in enumerate(observations):
                if observation.done:
                    own[at] = own_history(observation.done, self._index)
        offset = np.array([memory.offset(encoding) for encoding in encodings]) if memory and encodings else None
        return EncodedActions(design, rows, state, action, _allowed(observations, len(self.actions)), own, offset)

    def evaluate(self, encoded: EncodedActions, *, temperature: float) -> ActionEvaluation:
        return ActionEvaluation(encoded, self.weights, self.parameters["own"], temperature)

    def make_reference(self) -> None:
        """Takes the present parameters as the policy that the KL term pulls towards."""
        self.reference = {name: value.copy() for name, value in self.parameters.items()}

    def reference_logp(self, encoded: EncodedActions, *, temperature: float) -> FloatArray:
        """Log-probability of each decision under the reference policy: (M,)."""
        padded = np.zeros_like(self.weights)
        padded[: len(self.reference["weights"])] = self.reference["weights"]
        return ActionEvaluation(encoded, padded, self.reference["own"], temperature).logp

    def updated(self, version: str) -> None:
        """Names the new parameters and forgets distributions that were computed from the old ones."""
        self.version = version
        self._choices.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights[1:].copy(),
            "own": self.parameters["own"].copy(),
            "reference": self.reference["weights"][1:].copy(),
            "reference_own": self.reference["own"].copy(),
            "ids": np.array(self._ids, dtype=np.int32),
            "version": self.version,
            "actions": list(self.actions),
            "vocabulary": self.encoder.vocabulary,
            "documents": self.encoder.documents,
            "options": asdict(self.encoder.options),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> ActionPolicy:
        """Raises:
        KeyError, TypeError, ValueError: it is no such state, or its parts don't fit together."""
        options = FeatureOptions(**state["options"])
        _check_stored(state, options)
        encoder = TextEncoder(options, state["vocabulary"], state["documents"])
        policy = cls(state["actions"], encoder, version=str(state["version"]))
        policy._ids = [int(i) for i in state["ids"]]
        policy._row_of[state["ids"]] = np.arange(1, len(policy._ids) + 1)
        policy.parameters["weights"] = np.vstack([policy.weights, state["weights"]])
        policy.parameters["own"] = np.array(state["own"])
        policy.reference["weights"] = np.vstack([policy.reference["weights"], state["reference"]])
        policy.reference["own"] = np.array(state["reference_own"])
        return policy

    def distribution(
        self, observation: Observation, temperature: float, memory: FailureMemory | None = None
    ) -> _Choices:
        """The allowed actions of a state and their probabilities."""
        encoding = self.encoder.encode(observation)
        logits = encoding.values @ self.weights[self._row_of[encoding.ids]]
        if observation.done and self.encoder.options.own_history:
            logits += self.parameters["own"] @ own_history(observation.done, self._index)
        if memory is not None:
            logits = logits + memory.offset(encoding)
        indices = np.flatnonzero(observation.mask) if observation.mask else np.arange(len(self.actions))
        z = logits[indices]
        if temperature == 0.0:
            indices = indices[z == z.max()]
            n = len(indices)
            return _Choices(indices.tolist(), [float(i + 1) for i in range(n)], [-float(np.log(n))] * n)
        z = (z - z.max()) / temperature
        p = np.exp(z)
        total = p.sum()
        return _Choices(indices.tolist(), list(accumulate(p.tolist())), (z - np.log(total)).tolist())

    def _design(self, encodings: Sequence[Encoding]) -> tuple[FloatArray, IntArray]:
        counts = [len(encoding.ids) for encoding in encodings]
        ids = np.concatenate([encoding.ids for encoding in encodings]) if encodings else np.zeros(0, dtype=np.int64)
        self._allocate(ids)
        rows, column = np.unique(self._row_of[ids], return_inverse=True)
        design = np.zeros((len(encodings), len(rows)))
        if len(ids):
            values = np.concatenate([encoding.values for encoding in encodings])
            design[np.repeat(np.arange(len(encodings)), counts), column.reshape(-1)] = values
        return design, rows

    def _allocate(self, ids: IntArray) -> None:
        new = np.unique(ids[self._row_of[ids] == _UNSEEN])
        if len(new) == 0:
            return
        start = len(self.weights)
        self._row_of[new] = np.arange(start, start + len(new))
        self._ids += new.tolist()
        self.parameters["weights"] = np.vstack([self.weights, np.zeros((len(new), len(self.actions)))])


class ExploringPolicy:
    """A policy with the offsets of a ``FailureMemory``: a chooser for training rollouts."""

    def __init__(self, policy: ActionPolicy, memory: FailureMemory) -> None:
        self.version = policy.version
        self._policy, self._memory = policy, memory
        self._choices: _Cache = {}

    def choose(self, observation: Observation, rng: np.random.Generator, *, temperature: float) -> tuple[int, float]:
        return _drawn(self._choices, self._policy, observation, rng, temperature, self._memory)


def _drawn(
    cache: _Cache,
    policy: ActionPolicy,
    observation: Observation,
    rng: np.random.Generator,
    temperature: float,
    memory: FailureMemory | None,
) -> tuple[int, float]:
    """(index, log-probability of it), from the cached distribution of the state."""
    key = (observation, temperature)
    choices = cache.get(key)
    if choices is None:
        if len(cache) >= _CHOICES_LIMIT:
            cache.clear()
        choices = cache[key] = policy.distribution(observation, temperature, memory)
    drawn = bisect_right(choices.cumulative, rng.random() * choices.cumulative[-1])
    at = min(drawn, len(choices.indices) - 1)  # rounding may reach the total itself
    return choices.indices[at], choices.logp[at]


def _check_stored(state: Mapping[str, Any], options: FeatureOptions) -> None:
    """Raises:
    ValueError: the parts of a stored policy don't fit together; it would fail, or act at random, long after it was
    loaded."""
    n, actions, ids = len(state["ids"]), len(state["actions"]), np.asarray(state["ids"])
    if not 1 <= options.bits <= MOST_BITS:
        raise ValueError(f"bits must lie between 1 and {MOST_BITS}; got {options.bits}.")
    shapes = {"weights": (n, actions), "own": (len(STATUSES),), "reference_own": (len(STATUSES),)}
    shapes["reference"] = (min(len(state["reference"]), n), actions)  # of features that were known when it was taken
    for name, shape in shapes.items():
        if np.shape(state[name]) != shape or not np.isfinite(state[name]).all():
            raise ValueError(f"{name} must be numbers of shape {shape}.")
    if len(np.unique(ids)) < n or (n and not 0 <= ids.min() <= ids.max() < 1 << options.bits):
        raise ValueError("A feature's id is there twice, or is out of range.")


def _allowed(observations: Sequence[Observation], actions: int) -> BoolArray | None:
    if all(observation.mask is None for observation in observations):
        return None
    return np.array([observation.mask or (True,) * actions for observation in observations], dtype=np.bool_)
