"""The columns of a trajectory as programs read them, in order; ``presenters.shapes`` says what each of them is."""

from __future__ import annotations

from typing import Final

LISTED: Final = (
    *("job_id", "agent_id", "purpose", "arm", "line", "iteration", "scenario", "rollout"),
    *("success", "outcome", "reward", "reward_before_ranking", "n_steps", "truncated", "error"),
    *("tokens", "duration_ms", "policy_version", "model", "created_at"),
)
LEARNED: Final = ("normalized_reward", "advantage", "step_advantages")  # by the update, if there was one
