"""REST for the services that act: contexts out, executions in. Paths, bodies and codes are a contract (docs/ace.md)."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
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
    schema = None  # internal: not in the public description

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


class ServicePlaybookViewSet(ServiceViewSet):
    """``POST playbooks`` and ``DELETE playbooks/{agent_id}``."""

    def create(self, request: Request) -> Response:
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

    def destroy(self, request: Request, agent: str) -> Response:
        playbook_delete(self.actor, playbook_get(self.actor, agent))
        return Response(status=204)


class ContextViewSet(ServiceViewSet):
    """``GET playbooks/{agent_id}/context``. What the fast path can't answer from memory comes here."""

    throttle_classes = ()

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
    """``POST traces``: one execution, or ``{"traces": [...]}`` for many, all of them or none."""

    def create(self, request: Request) -> Response:
        many = isinstance(request.data, dict) and "traces" in request.data
        given = parsed(TracesIn, request.data)["traces"] if many else [parsed(TraceIn, request.data)]
        agents = {name: self.agent_named(name) for name in dict.fromkeys(one["agent_id"] for one in given)}
        rows = traces_record(self.actor, [_new(one, agents[one["agent_id"]]) for one in given])
        made = [{"trace_id": row.id, "recorded_at": row.recorded_at} for row in rows]
        return Response({"traces": made} if many else made[0], status=201)


class EvolveViewSet(ServiceViewSet):
    """``POST playbooks/{agent_id}/evolve``."""

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
    """``GET playbooks/{agent_id}/status``."""

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
