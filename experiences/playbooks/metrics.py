"""Prometheus names of playbooks and their evolution."""

from __future__ import annotations

from prometheus_client import Counter

evolutions = Counter("ace_evolutions_total", "Evolutions that ended, by outcome.", ["outcome"])
deltas = Counter("ace_deltas_total", "Proposed changes of playbooks, by what became of them.", ["state"])
contexts = Counter(
    "ace_contexts_total", "Contexts given out by the fast path, from memory or the database.", ["source"]
)
traces = Counter("ace_traces_total", "Executions recorded.")
