"""Prometheus names of events."""

from __future__ import annotations

from prometheus_client import Counter

published = Counter("events_published_total", "Events that the stream has acknowledged.")
consumed = Counter("events_consumed_total", "Events of others, by what became of them.", ["stream", "outcome"])
