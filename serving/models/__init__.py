"""Releases of agents."""

from serving.models.releases import Release, ReleaseSource

__all__ = ["Release", "ReleaseSource"]
