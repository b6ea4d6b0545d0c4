"""``agent.rl.reward.v1`` of a stored rollout or answer, and of a received reward. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from evaluation.events.payloads.reward_parts import HUMAN, RewardComponent
from evaluation.events.payloads.timestamps import written

EVALUATOR: Final = "agentcore"
METHODS: Final = {(False, True): "automated", (True, False): "human", (True, True): "hybrid"}  # (people, programs)


@dataclass(frozen=True, slots=True)
class StoredReward:
    """The reward of a rollout or answer. ``parts`` by the reward's own account; ``confidence`` in [0, 1], None where
    the reward says nothing of it."""

    id: str
    trajectory: str
    session: str
    at: datetime
    total: float
    parts: Sequence[RewardComponent]
    dense: bool
    confidence: float | None = None
    group: tuple[float, float] | None = None  # mean and deviation of its group, once that was complete
    trailing: bool = False  # each part is a z-score over the trailing observations


def reward_payload(row: StoredReward) -> dict[str, Any]:
    mean, std = row.group or (None, None)
    people = any(part.source == HUMAN for part in row.parts)
    programs = not people or any(part.source != HUMAN for part in row.parts)
    return {
        "reward_id": row.id,
        "trajectory_id": row.trajectory,
        "session_id": row.session,
        "timestamp": written(row.at),
        "reward_components": {part.name[:60]: part.payload() for part in row.parts},
        "total_reward": row.total,
        "reward_type": "dense" if row.dense else "sparse",
        "normalization": {"method": "z-score" if row.group or row.trailing else "none", "mean": mean, "std": std},
        "metadata": {
            "evaluator": EVALUATOR,
            "evaluation_method": METHODS[people, programs],
            "confidence": row.confidence,
        },
    }


def received_payload(
    reward_id: str, trajectory_id: str, total: float, components: Mapping[str, Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """A received reward as it came, without personal data."""
    found = {"reward_id": reward_id, "trajectory_id": trajectory_id, "total_reward": total, **about}
    return found | ({"reward_components": dict(components)} if components else {})
