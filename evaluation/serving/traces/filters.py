"""Filters of production traces and of feedback, for the pages and for REST."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django_filters import rest_framework as filters

from agentcore_site.rest.filters import Moment
from agentcore_site.tenancy.erasure import readable
from evaluation.serving.feedback.opinions import ABANDONED, CORRECTION, RETRIED, STARS, THUMBS
from evaluation.serving.models import ArmName, Feedback, FeedbackSource, ProductionTrace, TraceStatus
from experiences.lessons.filters import OfAgent
from experiences.models.agent_lookup import agent_get

GOOD: Final = Q(metric=THUMBS, value=1) | Q(metric=STARS, value__gte=4)
BAD: Final = Q(metric=THUMBS, value=0) | Q(metric=STARS, value__lte=2) | Q(metric__in=(CORRECTION, RETRIED, ABANDONED))
OPINIONS: Final = (("good", "liked"), ("bad", "disliked"), ("any", "with feedback"), ("none", "without feedback"))
ARMS: Final = tuple((key, title) for key, title in ArmName.choices if key)


class ProductionTraceFilters(OfAgent):
    release = filters.UUIDFilter(field_name="release_id", help_text="The release that answered.")
    deployment = filters.UUIDFilter(field_name="deployment_id", help_text="The deployment that it came through.")
    arm = filters.ChoiceFilter(choices=ARMS, help_text="Which of the agent's releases answered.")
    status = filters.ChoiceFilter(choices=TraceStatus.choices)
    session = filters.CharFilter(help_text="As the caller named it.")
    model = filters.CharFilter()
    feedback = filters.ChoiceFilter(
        method="of_opinion", choices=OPINIONS, help_text="What was thought of it; a rule's signals count as disliked."
    )
    min_reward = filters.NumberFilter(field_name="reward", lookup_expr="gte")
    max_reward = filters.NumberFilter(field_name="reward", lookup_expr="lte")
    since = Moment(field_name="created_at", lookup_expr="gte", help_text="From this moment on.")
    until = Moment(field_name="created_at", lookup_expr="lt", help_text="Before this moment.")
    search = filters.CharFilter(
        method="searched",
        help_text="Text in what was asked or answered (not where that is encrypted), or in the error.",
    )

    class Meta:
        model = ProductionTrace
        fields: list[str] = []

    def of_opinion(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        given = Feedback.objects.filter(trace=OuterRef("pk"))
        asked = {"good": GOOD, "bad": BAD}.get(value)
        found = Exists(given if asked is None else given.filter(asked))
        return rows.filter(~found if value == "none" else found) if value else rows

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        texts = {f"_{column}": readable(column) for column in ("request", "response")}
        found = rows.annotate(**texts)
        return found.filter(Q(_request__icontains=value) | Q(_response__icontains=value) | Q(error__icontains=value))


class FeedbackFilters(OfAgent):
    trace = filters.UUIDFilter(field_name="trace_id", help_text="The trace that it is about.")
    metric = filters.CharFilter(help_text="thumbs, stars, correction, comment, success, or one of yours.")
    source = filters.ChoiceFilter(choices=FeedbackSource.choices)
    since = Moment(field_name="updated_at", lookup_expr="gte", help_text="Given or changed from this moment on.")

    class Meta:
        model = Feedback
        fields: list[str] = []

    def of_agent(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(trace__agent_id=agent_get(self.actor, value).id)
