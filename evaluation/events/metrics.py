"""Prometheus names of events."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

published = Counter("events_published_total", "Events that the stream has acknowledged.")
consumed = Counter("events_consumed_total", "Events of others, by what became of them.", ["stream", "outcome"])
dropped = Counter(
    "events_dead_letters_dropped_total", "Oldest dead letters that newer ones of an organisation replaced."
)
inboxes_refused = Gauge("events_inboxes_refused", "Organisations for whose publishers NATS makes no stream.")
