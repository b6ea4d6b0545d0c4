"""Prometheus names of model calls."""

from __future__ import annotations

from prometheus_client import Counter

tokens = Counter("llm_tokens_total", "Tokens of model calls, by agent, model and kind.", ["agent_id", "model", "kind"])
