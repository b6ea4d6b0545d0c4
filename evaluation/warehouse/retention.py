"""Retention of roll-ups, and of the notes from which they and the warehouse are filled."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept("roll-ups", "Kept: sums of each hour, counted again after an erasure.", "warehouse_measure")
kept("notes of changed rows", "Deleted once they are counted or sent to the warehouse.", "warehouse_rowchange")
kept("place of the warehouse", "Kept: one row, or none.", "warehouse_warehousestore")
