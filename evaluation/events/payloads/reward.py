"""``agent.rl.reward.v1`` of a stored rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from evaluation.events.payloads.timestamps import written

EVALUATOR: Final = "agentcore"


@dataclass(frozen=True, slots=True)
class StoredReward:
    """The reward of a rollout. ``components`` by name, in the reward's own units: they are summed without weights."""

    id: str
    trajectory: str
    session: str
    at: datetime
    total: float
    components: Mapping[str, Any]
    dense: bool
    group: tuple[float, float] | None = None  # mean and deviation of its group, once that was complete


def reward_payload(row: StoredReward) -> dict[str, Any]:
    mean, std = row.group or (None, None)
    return {
        "reward_id": row.id,
        "trajectory_id": row.trajectory,
        "session_id": row.session,
        "timestamp": written(row.at),
        "reward_components": {
            name[:60]: {"score": float(value), "weight": 1.0, "source": "automated", "reasoning": ""}
            for name, value in row.components.items()
            if isinstance(value, int | float)
        },
        "total_reward": row.total,
        "reward_type": "dense" if row.dense else "sparse",
        "normalization": {"method": "z-score" if row.group else "none", "mean": mean, "std": std},
        "metadata": {"evaluator": EVALUATOR, "evaluation_method": "automated", "confidence": None},
    }
