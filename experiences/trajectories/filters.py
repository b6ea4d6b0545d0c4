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
from experiences.trajectories.annotations.selectors import annotated, not_annotated
from experiences.trajectories.failures import with_reason
from experiences.trajectories.query_search import query_with
from experiences.trajectories.step_search import step_errors_with, steps_with, tool_failed, tool_used

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
    search = filters.CharFilter(method="of_query", help_text="Text in the query.")
    tool = filters.CharFilter(method="of_tool", help_text="The name of a tool that a step used.")
    failed_tool = filters.CharFilter(method="of_failed_tool", help_text="The name of a tool that failed in a step.")
    words = filters.CharFilter(
        method="of_words",
        help_text='Whole words in its steps: results, errors, parameters, answers. "A phrase", or -without. Encrypted'
        " steps and archived trajectories are not searched.",
    )
    step_error = filters.CharFilter(method="of_step_error", help_text="The same in the errors of its steps alone.")
    reason = filters.CharFilter(
        method="of_reason",
        help_text="Why it failed, as the job's tab Failures has it: `error:timeout`, `cut_off`, `tool:search`,"
        " `wrong_answer`, `no_answer`, `no_step`. Name the job, too.",
    )
    annotated = Flag(method="of_annotated", help_text="Only those that a person annotated, or none of them.")
    label = filters.CharFilter(method="of_label", help_text="A label of its annotations.")
    min_score = filters.NumberFilter(method="of_score", help_text="A score of its annotations, at least so much.")
    max_score = filters.NumberFilter(method="of_score", help_text="A score of its annotations, at most so much.")

    class Meta:
        model = TrajectoryRecord
        fields: list[str] = []

    def of_outcome(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return rows.filter(OUTCOMES[value][1])

    def of_query(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return query_with(rows, value)

    def of_tool(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return tool_used(rows, value)

    def of_failed_tool(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return tool_failed(rows, value)

    def of_words(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return steps_with(rows, value)

    def of_step_error(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return step_errors_with(rows, value)

    def of_reason(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return with_reason(rows, value)

    def of_annotated(self, rows: QuerySet[TrajectoryRecord], name: str, value: bool) -> QuerySet[TrajectoryRecord]:
        return annotated(rows) if value else not_annotated(rows)

    def of_label(self, rows: QuerySet[TrajectoryRecord], name: str, value: str) -> QuerySet[TrajectoryRecord]:
        return annotated(rows, label=value)

    def of_score(self, rows: QuerySet[TrajectoryRecord], name: str, value: Any) -> QuerySet[TrajectoryRecord]:
        """Both ends are asked of one annotation."""
        given = {"gte": self.form.cleaned_data.get("min_score"), "lte": self.form.cleaned_data.get("max_score")}
        return annotated(rows, **{f"score__{end}": one for end, one in given.items() if one is not None})

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
