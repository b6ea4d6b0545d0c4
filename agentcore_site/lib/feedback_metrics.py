"""Prometheus metrics of the feedback loop, by the names, labels and buckets of its design. Dashboards rely on them.

This module counts events as they happen; gauges of models in production are read from the database
(``agentcore_site.prometheus``).
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Histogram

training_jobs = Counter("agent_rl_training_jobs_total", "Total RL training jobs", ["status"])
training_duration = Histogram(
    "agent_rl_training_duration_seconds",
    "Training job duration",
    buckets=[300, 600, 1800, 3600, 7200, 14400],
)
training_samples = Histogram(
    "agent_rl_training_samples",
    "Number of samples used in training",
    buckets=[1000, 5000, 10000, 50000, 100000],
)
trajectories_collected = Counter(
    "agent_rl_trajectories_collected_total", "Total trajectories collected", ["agent_type", "task_domain"]
)
trajectory_length = Histogram(
    "agent_rl_trajectory_length", "Number of turns in trajectory", buckets=[1, 3, 5, 10, 20, 50]
)
trajectory_reward = Histogram(
    "agent_rl_trajectory_reward", "Trajectory total reward", buckets=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
)
model_deployments = Counter("agent_rl_model_deployments_total", "Total model deployments", ["status"])

DOMAINS: Final = frozenset({"coding", "research", "data_analysis", "general"})
PROFILES: Final = frozenset({"researcher", "developer", "rl-trainer"})


def trajectory_collected(agent_type: str, domain: str, *, turns: int, reward: float | None) -> None:
    """Counts one trajectory. A domain outside of the design is "other": each label value creates a permanent series."""
    trajectories_collected.labels(agent_type, domain if domain in DOMAINS else "other").inc()
    trajectory_length.observe(turns)
    if reward is not None:
        trajectory_reward.observe(reward)
