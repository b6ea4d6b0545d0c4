"""Jobs that have not ended, of every kind that works for an agent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet

from agentcore_site.jobs.models import ACTIVE, Job


def jobs_of(agents: Iterable[uuid.UUID]) -> QuerySet[Job]:
    """The jobs of these agents, of every kind: a kind's row is 1-1 with its job and names its agent."""
    kinds = [
        one.name
        for one in Job._meta.related_objects
        if one.one_to_one and any(field.name == "agent" for field in one.related_model._meta.fields)
    ]
    ids = list(agents)
    return Job.objects.filter(reduce(or_, (Q(**{f"{kind}__agent_id__in": ids}) for kind in kinds)))


def titles_at_work(jobs: QuerySet[Job]) -> str:
    """The titles of those that have not ended, at most three; "" where all have."""
    return ", ".join(str(job) for job in jobs.filter(status__in=ACTIVE)[:3])
