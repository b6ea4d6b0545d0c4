"""REST: evolutions of playbooks, with what their reflector found and what became of each suggested change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_cancel
from agentcore_site.lib.errors import Conflict, Unavailable
from agentcore_site.rest.filters import Flag, Moment
from agentcore_site.rest.money import Usd
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.filters import OfAgent
from experiences.models import Evolution, ExecutionTrace
from experiences.playbooks.presenters.evolutions import evolution_words, rounds_of
from experiences.playbooks.presenters.reviews import DeltaOut
from experiences.playbooks.selectors import (
    deltas_visible,
    evolution_get,
    evolutions_visible,
    executions_of,
    playbook_get,
    trace_get,
    traces_visible,
)
from experiences.playbooks.services.evolutions import evolution_queue, evolution_retry


@extend_schema_serializer(deprecate_fields=["job_id"])
class EvolutionRow(Shape):
    id = serializers.UUIDField(source="job_id")
    job_id = serializers.UUIDField(help_text="The former name of `id`.")
    agent_id = serializers.UUIDField()
    playbook_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices, source="job.status")
    trigger = serializers.ChoiceField(
        choices=["traces", "request"], help_text="traces: enough executions were recorded. request: it was asked for."
    )
    version_before = serializers.IntegerField(allow_null=True, help_text="The playbook's version; null until it ends.")
    version_after = serializers.IntegerField(allow_null=True)
    cost_usd = Usd(source="cost_micros", help_text="Of all questions, once it ended.")
    tokens = serializers.IntegerField()
    created_at = serializers.DateTimeField(source="job.created_at")
    ended_at = serializers.DateTimeField(source="settled_at", allow_null=True, help_text="Null until changes are made.")


class ItemVerdictOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The item's id.")
    verdict = serializers.ChoiceField(choices=["helpful", "harmful", "neutral"])


class InsightOut(serializers.Serializer[Any]):
    """A lesson of some executions, as a model sees it. No agent receives it."""

    insight = serializers.CharField(help_text="What to do or know from now on.")
    happened = serializers.CharField()
    root_cause = serializers.CharField()
    items = ItemVerdictOut(many=True, help_text="An opinion: no count and no effect moves by it.")
    executions = serializers.ListField(
        child=serializers.IntegerField(), help_text="Places in the evolution's `executions`, counted from 1."
    )


class RoundOut(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    model = serializers.CharField(help_text="That was asked.")
    insights = InsightOut(many=True, allow_null=True, help_text="Null: the answer could not be used.")
    unchanged = serializers.BooleanField(help_text="Whether the round left the insights before it as they are.")
    current = serializers.BooleanField(help_text="Whether the changes were suggested from these insights.")
    reason = serializers.CharField(help_text="Why the answer could not be used.")
    calls = serializers.IntegerField(help_text="0: answered in an earlier evolution, at no cost.")
    tokens = serializers.IntegerField()
    cost_usd = Usd(source="cost_micros")


@extend_schema_serializer(deprecate_fields=["job_id"])
class EvolutionOut(EvolutionRow):
    verdict = serializers.CharField(read_only=True, help_text="What became of it, in a sentence.")
    error = serializers.CharField(source="job.error", help_text="Why it failed.")
    executions = serializers.SerializerMethodField(
        help_text="That were read, the newest last, as far as they are kept."
    )
    rounds = RoundOut(
        many=True,
        read_only=True,
        help_text="What its reflector found, the first round first; empty for agents without `ace_reflection_rounds`.",
    )
    changes = serializers.SerializerMethodField(help_text="What was suggested, and what became of it.")

    computed = {"verdict": lambda evolution: evolution_words(evolution).text, "rounds": rounds_of}

    @extend_schema_field(serializers.ListField(child=serializers.UUIDField()))
    def get_executions(self, row: Evolution) -> list[UUID]:
        return list(executions_of(self._actor, row).values_list("pk", flat=True))

    @extend_schema_field(DeltaOut(many=True))
    def get_changes(self, row: Evolution) -> Any:
        found = deltas_visible(self._actor).filter(job_id=row.job_id)
        return DeltaOut(found.order_by("created_at", "id"), many=True).data

    @property
    def _actor(self) -> Actor:
        actor: Actor = self.context["actor"]
        return actor


class EvolutionIn(Strict):
    agent = serializers.CharField(max_length=60, help_text="By id or slug; it needs a playbook that evolves.")


EVOLVE = OpenApiExample("Now", {"agent": "support"}, request_only=True)


class EvolutionFilters(OfAgent):
    status = filters.MultipleChoiceFilter(field_name="job__status", choices=Status.choices, help_text="Repeatable.")

    class Meta:
        model = Evolution
        fields: list[str] = []


@contextmanager
def switched_on() -> Iterator[None]:
    """Evolution that is switched off is a state that a person changes (409), not a service that comes back (503)."""
    try:
        yield
    except Unavailable as error:
        raise Conflict(error.message, fields=error.fields) from error


class EvolutionViewSet(ScopedViewSet):
    """Evolutions of playbooks, by the id of their job."""

    queryset = Evolution.objects.none()
    tag = "evolutions"
    serializer_class = EvolutionOut
    filterset_class = EvolutionFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "job__created_at"}
    versioned, locks = ("status",), Job

    @extend_schema(summary="List evolutions, the newest first", responses=EvolutionRow(many=True))
    def list(self, request: Request) -> Response:
        return self.page(evolutions_visible(self.actor), EvolutionRow)

    @extend_schema(summary="One evolution, with the insights of its reflector and its changes")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self._answer(pk)

    @extend_schema(summary="Let a playbook evolve now", request=EvolutionIn, examples=[EVOLVE])
    def create(self, request: Request) -> Response:
        """Its newest executions are read, and changes are suggested; what they may cost is held first."""
        playbook = playbook_get(self.actor, parsed(EvolutionIn, request.data)["agent"])
        with switched_on():
            return self.once(request, lambda: self._answer(evolution_queue(self.actor, playbook).job_id, status=201))

    @action(detail=True, methods=["post"], name="Try a failed evolution again")
    def retry(self, request: Request, pk: UUID) -> Response:
        with switched_on():
            evolution_retry(self.actor, evolution_get(self.actor, pk))
        return self._answer(pk)

    @action(detail=True, methods=["post"], name="Cancel an evolution")
    def cancel(self, request: Request, pk: UUID) -> Response:
        job_cancel(self.actor, evolution_get(self.actor, pk).job)
        return self._answer(pk)

    def _answer(self, pk: UUID, *, status: int = 200) -> Response:
        found = evolution_get(self.actor, pk)
        return self.answer(found, status=status)


class ExecutionRow(serializers.Serializer[Any]):
    """One execution of an agent in production, without personal data."""

    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    task_id = serializers.CharField()
    duration_ms = serializers.FloatField()
    success = serializers.BooleanField()
    context_version = serializers.IntegerField(
        allow_null=True, help_text="Version of the playbook in the context; null: none."
    )
    left_out = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Items that its context lacked by chance."
    )
    used = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Items that its answer used; null: it does not say."
    )
    recorded_at = serializers.DateTimeField()


class ExecutionOut(ExecutionRow):
    inputs = serializers.JSONField()
    outputs = serializers.JSONField()


class ExecutionFilters(OfAgent):
    success = Flag()
    task = filters.CharFilter(field_name="task_id", help_text="The whole id that the service gave it.")
    since = Moment(field_name="recorded_at", lookup_expr="gte")
    until = Moment(field_name="recorded_at", lookup_expr="lt")

    class Meta:
        model = ExecutionTrace
        fields: list[str] = []


class ExecutionViewSet(ReadViewSet):
    """Executions that services recorded, from which playbooks evolve. They are never changed, and age."""

    queryset = ExecutionTrace.objects.none()
    tag = "executions"
    serializer_class = ExecutionOut
    filterset_class = ExecutionFilters
    lookup_value_converter = "uuid"
    orderings = {"-recorded_at": "recorded_at", "duration_ms": "duration_ms"}
    list_class = ExecutionRow
    lists = ("List executions", lambda actor: traces_visible(actor).defer("inputs", "outputs"))
    reads = ("One execution, with its input and output", trace_get)
