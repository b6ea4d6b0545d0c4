"""Prometheus names of the warehouse."""

from __future__ import annotations

from prometheus_client import Counter

stored = Counter("warehouse_rows_total", "Rows that the warehouse was sent or told to delete.")
