"""Jobs that run on what would be erased: they hold it in memory, and must end first."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.errors import Conflict
from agentcore_site.jobs.models import ACTIVE
from agentcore_site.tenancy.erasure import Finding, places
from experiences.erasure import rows_about
from training.models import TrainingRun


@places.register("jobs at work on it")
def jobs(organization_id: uuid.UUID, words: Sequence[str]) -> Finding:
    """Raises:
    Conflict: there is one."""
    datasets = {row.dataset_id for row in rows_about(organization_id, words)}
    busy = TrainingRun.objects.filter(dataset_id__in=datasets, job__status__in=ACTIVE).select_related("job")
    names = [str(run.job) for run in busy[:3]]
    if names:
        raise Conflict(f"{', '.join(names)} still work with this data. Let them end, or cancel them, then try again.")
    return Finding(0, lambda: None)
