"""Filters that several interfaces share: those of trajectories for the REST list, the export and JSON-RPC."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.filters import Flag, Moment, Whole
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.filters import OfAgent
from experiences.models import TrajectoryRecord

PURPOSES = (("training", "training"), ("evaluation", "evaluation"), ("received", "received"))
OUTCOMES: Final = {
    "success": ("succeeded", Q(success=True)),
    "failure": ("failed", Q(success=False)),
    "error": ("with an error", ~Q(error="")),
    "truncated": ("cut off", Q(truncated=True)),
}


class TrajectoryFilters(OfAgent):
    job = filters.UUIDFilter(method="of_job", help_text="The training or evaluation job.")
    iteration = Whole(field_name="iteration", help_text="The iteration of the training job.")
    success = Flag(field_name="success", help_text="Only successes, or only failures.")
    outcome = filters.ChoiceFilter(
        method="of_outcome",
        choices=[(name, title) for name, (title, _) in OUTCOMES.items()],
        help_text="How it ended: with an error, or cut off before its end.",
    )
    min_reward = filters.NumberFilter(field_name="reward", lookup_expr="gte")
    max_reward = filters.NumberFilter(field_name="reward", lookup_expr="lte")
    since = Moment(field_name="created_at", lookup_expr="gte", help_text="From this moment on.")
    until = Moment(field_name="created_at", lookup_expr="lt", help_text="Before this moment.")
    purpose = filters.ChoiceFilter(field_name="purpose", choices=PURPOSES)
    search = filters.CharFilter(field_name="query", lookup_expr="icontains", help_text="Text in the query.")

    class Meta:
        model = TrajectoryRecord
        fields: list[str] = []

    def of_outcome(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return rows.filter(OUTCOMES[value][1])

    def of_job(self, rows: QuerySet[TrajectoryRecord], name: str, value: Any) -> QuerySet[TrajectoryRecord]:
        job = job_get(self.actor, value)
        # The month is constant for a job: naming it lets PostgreSQL look into one partition only.
        return rows.filter(job_id=job.id, month=job.created_at.date().replace(day=1))


def trajectories_filtered(
    rows: QuerySet[TrajectoryRecord], actor: Actor, values: dict[str, Any]
) -> QuerySet[TrajectoryRecord]:
    """The rows that pass; ``values`` by the names above.

    Raises:
        Invalid: a value is of the wrong kind.
        Missing: the job or the agent is not there, or not the actor's.
    """
    found = TrajectoryFilters({name: value for name, value in values.items() if value is not None}, rows, actor=actor)
    if not found.is_valid():
        fields = {name: " ".join(str(message) for message in messages) for name, messages in found.errors.items()}
        raise Invalid(" ".join(f"{name}: {message}" for name, message in fields.items()), fields=fields)
    return found.qs  # type: ignore[no-any-return]
