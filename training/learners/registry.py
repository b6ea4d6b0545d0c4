"""Learners by name. The built-in ones are registered here; other packages' come through entry points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from agentcore_site.lib.registry import Registry
from experiences.rollouts.types import ActionSpec
from training.learners.action import ActionLearner
from training.learners.context import ContextLearner
from training.learners.weights import WeightsLearner
from training.policies.archive import CorruptState, under, unpack
from training.policies.base import Policy
from training.trainer import versions
from training.trainer.setup import Learner

learners: Registry[Learner] = Registry("learner", entry_point_group="agentcore.learners")
_BUILT_IN: Final = (ActionLearner(), ContextLearner(), WeightsLearner())
for _one in _BUILT_IN:
    learners.register(_one.name)(_one)


class UnfitLearner(ValueError):
    """The learner can't learn from rollouts of such an agent; the message says which can."""


def learner_of(runtime: str, name: str = "") -> Learner:
    """The learner called ``name``; where it is empty, the first built-in one for agents of this runtime.

    Raises:
        UnknownName: there is no such learner.
        UnfitLearner: it does not learn from agents of this runtime, or no built-in one does.
    """
    if name:
        found = learners.get(name)
        if runtime in found.runtimes:
            return found
    else:
        for found in _BUILT_IN:
            if runtime in found.runtimes:
                return found
    fitting = ", ".join(learner.name for learner in learners_for(runtime)) or "none"
    which = f"Learner {name} does not learn" if name else "No built-in learner learns"
    raise UnfitLearner(f"{which} from agents of runtime {runtime}. Those that do: {fitting}.")


def learners_for(runtime: str) -> list[Learner]:
    """Learners for agents of this runtime, by name."""
    return [one for _, one in learners.items() if runtime in one.runtimes]


class StoredPolicy(NamedTuple):
    """The policy of a stored trainer state, the learner that wrote it, and after how many iterations."""

    policy: Policy
    learner: Learner
    iteration: int

    def chooses_among(self, actions: Sequence[ActionSpec]) -> bool:
        """Whether the policy chooses among these actions; True for a policy without actions."""
        names = [action.name for action in actions]
        return list(getattr(self.policy, "actions", names)) == names


def policy_of(data: bytes) -> Policy:
    """The policy of a stored trainer state, without the trainer: for evaluation and serving.

    Raises:
        CorruptState: the bytes are no such state, or no learner that is installed wrote it.
    """
    return stored_policy(data).policy


def stored_policy(data: bytes, *, most: int | None = None) -> StoredPolicy:
    """The policy with its learner. ``most``: as for ``unpack``.

    Raises:
        CorruptState: the bytes are no stored trainer state, or no learner that is installed wrote it.
    """
    state = versions.upgraded(unpack(data, most=most))
    stored = under("policy", state)
    kind = str(stored.get("kind", "action"))
    for _, learner in learners.items():
        if kind in learner.stored_as:
            return StoredPolicy(learner.from_state_dict(stored), learner, int(state["iteration"]))
    raise CorruptState(f"No learner that is installed reads a policy of kind {kind!r}.")
