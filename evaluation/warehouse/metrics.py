"""Prometheus names of the warehouse."""

from __future__ import annotations

from prometheus_client import Counter

stored = Counter("warehouse_rows_total", "Rows that were sent to the warehouse or deleted there.")
