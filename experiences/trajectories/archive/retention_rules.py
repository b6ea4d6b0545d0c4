"""Retention of trajectories: the two rules that jobs carry out."""

from __future__ import annotations

from agentcore_site.lib.retention import RetentionRule, kept, rules
from agentcore_site.tenancy.models import Organization


def _due() -> int:
    from experiences.trajectories.archive.archive_lifecycle import months_due, portions

    return sum(portion.rows for month in months_due() for portion in portions(month))


def _age() -> int:
    """Asks for a job of each organisation that has something to do. Returns how many."""
    from experiences.trajectories.archive.archive_lifecycle import partitions_ahead
    from experiences.trajectories.archive.execution import months_drop, todo
    from experiences.trajectories.archive.services import retention_queue

    partitions_ahead()
    asked = sum(retention_queue(organization) for organization in Organization.objects.all() if todo(organization.pk))
    months_drop()  # what no job has to wait for: the last of several organisations may have ended long ago
    return asked


def _over() -> int:
    from experiences.trajectories.archive.archive_lifecycle import expired

    return sum(archive.rows for archive in expired())


rules.register("trajectories")(
    RetentionRule(
        ("experiences_trajectory", "experiences_query"),
        "Whole months are archived as Parquet in the object storage, proven there, and dropped.",
        "TRAJECTORY_HOT_DAYS",
        _due,
        _age,
    )
)
rules.register("archives")(
    RetentionRule(
        ("experiences_trajectoryarchive", "experiences_archivedjob", "experiences_grouprecord"),
        "Deleted by the agent's or the organisation's rule, with the groups of their jobs; that there was one is kept.",
        "TRAJECTORY_ARCHIVE_DAYS",
        _over,
        lambda: 0,  # by the same jobs
    )
)
kept("datasets", "Kept, without what an erasure deletes.", "experiences_dataset", "experiences_datasetrow")
kept("rules of archives", "Kept until a person changes them.", "experiences_archiverule")
