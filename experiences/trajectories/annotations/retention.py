"""Retention of annotations: as long as their trajectories."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept(
    "annotations",
    "Kept beside their trajectories, also once these are archived; deleted when their archive is.",
    "experiences_annotation",
)
