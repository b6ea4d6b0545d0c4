"""Retention of comparisons: they are kept."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept(
    "held-out comparisons",
    "Kept as long as their job: what was proven, and how often a held-out set was used.",
    "evaluation_evaluationrun",
    "evaluation_evaluationresult",
    "evaluation_heldoutlook",
)
