"""How annotations age: with their trajectories."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept(
    "annotations",
    "Kept beside their trajectories, also once these are archived; deleted when their archive is.",
    "experiences_annotation",
)
