"""Prometheus names of playbooks and their evolution."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

evolutions = Counter("ace_evolutions_total", "Evolutions that ended, by outcome.", ["outcome"])
deltas = Counter("ace_deltas_total", "Proposed changes of playbooks, by what became of them.", ["state"])
contexts = Counter(
    "ace_contexts_total", "Contexts given out by the fast path, from memory or the database.", ["source"]
)
traces = Counter("ace_traces_total", "Executions recorded.")
executions = Counter(
    "ace_executions_total", "Executions recorded, by agent and whether they succeeded.", ["agent_id", "success"]
)
confidence = Histogram(
    "ace_delta_confidence",
    "Confidence of proposed changes of playbooks.",
    buckets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
)
context_seconds = Histogram(
    "ace_context_seconds",
    "Time to find a context for the fast path.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)
