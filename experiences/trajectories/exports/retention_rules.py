"""Retention of files of exports."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from agentcore_site.jobs.models import ENDED, Status
from agentcore_site.lib.retention import RetentionRule, rules
from experiences.models import TrajectoryExport
from experiences.trajectories.exports.stored import export_delete


def exports_over() -> QuerySet[TrajectoryExport]:
    """Exports whose file is due: those that were cancelled at once, the others after their days."""
    over = Q(job__status=Status.CANCELLED)
    if settings.EXPORT_DAYS:
        since = timezone.now() - timedelta(days=settings.EXPORT_DAYS)
        over |= Q(job__status__in=ENDED, job__finished_at__lt=since)
    return TrajectoryExport.objects.filter(over, deleted_at=None).select_related("job")


rules.register("exports")(
    RetentionRule(
        ("experiences_trajectoryexport", "experiences_exportpart"),
        "Files are deleted so many days after they were written; that there was one stays with its job.",
        "EXPORT_DAYS",
        lambda: exports_over().count(),
        lambda: sum(export_delete(one) for one in exports_over()),
    )
)
