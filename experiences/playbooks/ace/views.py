"""REST for the services that act: contexts out, executions in. Paths, bodies and codes are a contract (docs/ace.md)."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    PolymorphicProxySerializer,
    extend_schema,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site import health
from agentcore_site.lib.errors import Invalid, Missing, Unavailable
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.throttling import KeyThrottle
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.authentication import ApiKeyAuthentication, JwtAuthentication
from agentcore_site.tenancy.permissions import require
from experiences.learning.playbooks.items import CATEGORIES, MAX_CONTENT
from experiences.learning.playbooks.leave_out import LONGEST_ID
from experiences.models import Agent, Philosophy
from experiences.models.agent_lookup import agent_get
from experiences.playbooks.ace.access import require_service
from experiences.playbooks.ace.answers import CACHING, context_answer, still_holds
from experiences.playbooks.presenters.items import EvolutionsOut
from experiences.playbooks.selectors import compiled, evolution_status, playbook_get, queue_position
from experiences.playbooks.services.evolutions import evolution_check, evolution_queue
from experiences.playbooks.services.executions import MAX_BATCH, TASK_LENGTH, NewTrace, traces_record
from experiences.playbooks.services.playbooks import playbook_create, playbook_delete

MOST_USED = 200  # items that one execution may name


class ServiceThrottle(KeyThrottle):
    """Services record what agents do all day: they have a rate of their own."""

    scope = "ace"


class ServiceViewSet(ScopedViewSet):
    """Keys and tokens only: a browser's session does not count here."""

    authentication_classes = (ApiKeyAuthentication, JwtAuthentication)
    throttle_classes: tuple[type[KeyThrottle], ...] = (ServiceThrottle,)
    for_services = True
    tag = "internal"
    pagination_class = None  # type: ignore[assignment]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_service(self.actor)

    def agent_named(self, name: Any, field: str = "agent_id") -> Agent:
        """The agent that a body names; a wrong name is the body's fault.

        Raises:
            Invalid: there is no such agent here.
        """
        try:
            return agent_get(self.actor, name)
        except Missing as error:
            raise Invalid(error.message, fields={field: error.message}) from error


class SectionIn(Strict):
    category = serializers.ChoiceField(choices=CATEGORIES)
    content = serializers.CharField(max_length=MAX_CONTENT)
    confidence = serializers.FloatField(min_value=0, max_value=1, required=False)


class PlaybookIn(Strict):
    agent_id = serializers.CharField(max_length=100)
    philosophy = serializers.ChoiceField(choices=Philosophy.choices, required=False)
    initial_sections = SectionIn(many=True, required=False)


class TraceIn(Strict):
    agent_id = serializers.CharField(max_length=100)
    task_id = serializers.CharField(max_length=TASK_LENGTH, required=False, allow_null=True, allow_blank=True)
    inputs = serializers.DictField(required=False)
    outputs = serializers.DictField(required=False)
    duration_ms = serializers.FloatField()
    success = serializers.BooleanField()
    context_version = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False, allow_null=True)
    context_id = serializers.CharField(max_length=LONGEST_ID, required=False, allow_null=True)
    used = serializers.ListField(
        child=serializers.CharField(max_length=16), max_length=MOST_USED, required=False, allow_null=True
    )


class TracesIn(Strict):
    traces = serializers.ListField(child=TraceIn(), allow_empty=False, max_length=MAX_BATCH)


class NewPlaybookOut(serializers.Serializer[Any]):
    playbook_id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class ContextOut(serializers.Serializer[Any]):
    agent_id = serializers.UUIDField()
    context = serializers.CharField()  # type: ignore[assignment]
    version = serializers.IntegerField(help_text="The playbook's version that the items are of.")
    section_count = serializers.IntegerField()
    context_id = serializers.CharField(help_text="Send it with each execution that had this context.")
    included = serializers.ListField(child=serializers.CharField(), help_text="The items of the playbook in it.")
    told = serializers.ListField(child=serializers.CharField(), help_text="The former name of `included`.")


class TraceOut(serializers.Serializer[Any]):
    """Of `{"traces": […]}` the answer is `{"traces": […]}` too, in the same order."""

    trace_id = serializers.UUIDField()
    recorded_at = serializers.DateTimeField()


class QueuedOut(serializers.Serializer[Any]):
    agent_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    queued_at = serializers.DateTimeField()
    queue_position = serializers.IntegerField(help_text="1 is next.")


class EvolutionStatusOut(EvolutionsOut):
    agent_id = serializers.UUIDField()


REVIEWED = OpenApiResponse(description="The agent's ace_release is reviewed, and no release of it is deployed.")
UNAVAILABLE = OpenApiResponse(description="No worker or model is there, or evolution is off on this site.")
EXAMPLE = OpenApiExample(
    "With an item",
    {
        "agent_id": "support",
        "philosophy": "chat",
        "initial_sections": [{"category": "learnings", "content": "Ask for the order's number first."}],
    },
    request_only=True,
)
EXECUTION = OpenApiExample(
    "One execution",
    {
        "agent_id": "support",
        "task_id": "task-1",
        "inputs": {"question": "Where is my order?"},
        "outputs": {"answer": "It left the depot."},
        "duration_ms": 1234,
        "success": True,
        "context_id": "3",
    },
    request_only=True,
)


class ServicePlaybookViewSet(ServiceViewSet):
    """A service's own playbooks: made and deleted."""

    @extend_schema(
        summary="Make an agent's playbook, as a service",
        request=PlaybookIn,
        responses={201: NewPlaybookOut},
        examples=[EXAMPLE],
    )
    def create(self, request: Request) -> Response:
        """An agent whose `ace_release` was not chosen gets the site's `ACE_RELEASE`."""
        given = parsed(PlaybookIn, request.data)
        made = playbook_create(
            self.actor,
            agent=self.agent_named(given["agent_id"]),
            philosophy=given.get("philosophy", ""),
            initial_sections=given.get("initial_sections", []),
            for_service=True,
        )
        body = {
            "playbook_id": made.id,
            "agent_id": made.agent_id,
            "version": made.version,
            "created_at": made.created_at,
        }
        return Response(body, status=201)

    @extend_schema(summary="Delete an agent's playbook, as a service", responses={204: None})
    def destroy(self, request: Request, agent: str) -> Response:
        """Its history goes with it, and an evolution under way is cancelled. Executions stay."""
        playbook_delete(self.actor, playbook_get(self.actor, agent))
        return Response(status=204)


class ContextViewSet(ServiceViewSet):
    """The context before a task: without an `ace_release` of `direct`, that of the deployed release."""

    # What the fast path (asgi_fast_path.py) can't answer from memory comes here.
    throttle_classes = ()

    @extend_schema(
        summary="An agent's context",
        parameters=[OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER)],
        responses={200: ContextOut, 304: OpenApiResponse(description="It is what the tag names."), 409: REVIEWED},
    )
    def retrieve(self, request: Request, agent: str) -> HttpResponse:
        answer = context_answer(compiled(self.actor, agent))
        if still_holds(answer.etag, request.headers.get("If-None-Match", "")):
            response = HttpResponse(status=304)
            del response["Content-Type"]
        else:
            response = HttpResponse(answer.body, content_type="application/json")
        response["ETag"], response["Cache-Control"] = answer.etag, CACHING
        return response


class TraceViewSet(ServiceViewSet):
    """One execution, or `{"traces": [...]}` for many: all of them are recorded, or none."""

    @extend_schema(
        summary="Record executions",
        request=PolymorphicProxySerializer(
            component_name="Executions", serializers=[TraceIn, TracesIn], resource_type_field_name=None
        ),
        responses={201: TraceOut},
        examples=[EXECUTION],
    )
    def create(self, request: Request) -> Response:
        many = isinstance(request.data, dict) and "traces" in request.data
        given = parsed(TracesIn, request.data)["traces"] if many else [parsed(TraceIn, request.data)]
        agents = {name: self.agent_named(name) for name in dict.fromkeys(one["agent_id"] for one in given)}
        rows = traces_record(self.actor, [_new(one, agents[one["agent_id"]]) for one in given])
        made = [{"trace_id": row.id, "recorded_at": row.recorded_at} for row in rows]
        return Response({"traces": made} if many else made[0], status=201)


class EvolveViewSet(ServiceViewSet):
    """A job that asks a model for changes. One of an agent is under way at a time."""

    @extend_schema(summary="Let a playbook evolve", responses={202: QueuedOut, 503: UNAVAILABLE})
    def create(self, request: Request, agent: str) -> Response:
        playbook = playbook_get(self.actor, agent)
        require(self.actor, "playbook.evolve", playbook.organization_id)
        evolution_check(playbook)
        if health.workers().status != health.OK:
            raise Unavailable("No worker is there that could do it. Start one, or wait until one is up.")
        evolution = evolution_queue(self.actor, playbook)
        body = {
            "agent_id": playbook.agent_id,
            "job_id": evolution.job_id,
            "queued_at": evolution.job.created_at,
            "queue_position": queue_position(evolution.job),
        }
        return Response(body, status=202)


class StatusViewSet(ServiceViewSet):
    """Counts over all evolutions of the playbook."""

    @extend_schema(summary="Figures of a playbook's evolutions", responses=EvolutionStatusOut)
    def retrieve(self, request: Request, agent: str) -> Response:
        return Response(evolution_status(playbook_get(self.actor, agent)))


def _new(given: dict[str, Any], agent: Agent) -> NewTrace:
    return NewTrace(
        agent=agent,
        inputs=given.get("inputs", {}),
        outputs=given.get("outputs", {}),
        duration_ms=given["duration_ms"],
        success=given["success"],
        task_id=given.get("task_id") or "",
        context_version=given.get("context_version"),
        context_id=given.get("context_id") or "",
        used=given.get("used"),
    )
