"""Prometheus metrics of training. Dashboards and alerts rely on their names."""

from __future__ import annotations

from prometheus_client import Histogram

rollout_seconds = Histogram(
    "trajectory_generation_seconds",
    "Time of one rollout, in seconds.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 30, 60, 120, 300),
)
update_seconds = Histogram(
    "policy_update_seconds",
    "Time of one policy update, in seconds.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2, 5, 10),
)
