"""REST of events: the publishing switch, publishers, and dead letters."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization
from evaluation.events.addresses import checkpoint_address
from evaluation.events.filters import DeadLetterFilters, EventCredentialFilters
from evaluation.events.models import DeadLetter, EventCredential, RequestMode, TrainingRequest
from evaluation.events.presenters import DeadLetterOut, EventCredentialOut
from evaluation.events.publishing import status_of
from evaluation.events.request_settings import unused_here
from evaluation.events.selectors import (
    dead_letter_get,
    dead_letters_visible,
    event_credential_get,
    event_credentials_visible,
    publishing_since,
    waiting,
)
from evaluation.events.services import (
    dead_letter_dismiss,
    dead_letter_retry,
    event_credential_create,
    event_credential_revoke,
    publishing_set,
)
from evaluation.events.training import training_request, training_request_cancel, training_request_get
from evaluation.serving.models import Release
from evaluation.serving.releases.selectors import releases_visible
from experiences.models.agent_lookup import agent_get


class EventPublishingOut(serializers.Serializer[Any]):
    publishes = serializers.BooleanField(help_text="Whether the organisation's events are published.")
    production = serializers.BooleanField(help_text="Whether answers in production and their rewards are, too.")
    waiting = serializers.IntegerField(help_text="Events that are not published yet.")


class EventPublishingIn(Strict):
    publishes = serializers.BooleanField()
    production = serializers.BooleanField(required=False, help_text="Left out: as it is, and true where it begins.")


class EventCredentialMadeOut(EventCredentialOut):
    password = serializers.CharField(help_text="Shown this once.")


class EventCredentialIn(Strict):
    name = serializers.CharField(max_length=80)
    agent = serializers.CharField(required=False, allow_null=True, max_length=100, help_text="Id or slug of an agent.")


class EventPublishingViewSet(ScopedViewSet):
    """The organisation's publishing switch."""

    queryset = DeadLetter.objects.none()
    tag = "events"
    serializer_class = EventPublishingOut
    lookup_field = ""  # one of an organisation
    versioned = ("publishes", "production")

    def version_row(self, **place: Any) -> QuerySet[Any]:
        return Organization._base_manager.filter(pk=current_organization(self.actor).pk)

    @extend_schema(summary="Are events published?")
    def retrieve(self, request: Request) -> Response:
        return self._answer()

    @extend_schema(summary="Publish events, or not", request=EventPublishingIn)
    def partial_update(self, request: Request) -> Response:
        values = parsed(EventPublishingIn, request.data)
        organization = current_organization(self.actor)
        publishing_set(self.actor, organization, on=values["publishes"], production=values.get("production"))
        return self._answer()

    def _answer(self) -> Response:
        id = current_organization(self.actor).pk
        switch = publishing_since(self.actor, id)
        values = {"publishes": switch is not None, "production": switch is not None and switch.production}
        return self.answer(values | {"waiting": waiting(id)})


class EventCredentialViewSet(ReadViewSet):
    """Programs elsewhere that publish events: agents, and services for all of an organisation's agents."""

    queryset = EventCredential.objects.none()
    tag = "events"
    serializer_class = EventCredentialOut
    filterset_class = EventCredentialFilters
    versioned = ("revoked_at",)
    shown_once = {"create": "password"}
    lists = ("List publishers", event_credentials_visible)
    reads = ("One publisher", event_credential_get)

    @extend_schema(summary="Make a publisher", request=EventCredentialIn, responses={201: EventCredentialMadeOut})
    def create(self, request: Request) -> Response:
        values = parsed(EventCredentialIn, request.data)
        agent = agent_get(self.actor, values["agent"]) if values.get("agent") else None

        def work() -> Response:
            row, password = event_credential_create(self.actor, name=values["name"], agent=agent)
            return Response(EventCredentialOut(row).data | {"password": password}, status=201)

        return self.once(request, work)

    @extend_schema(summary="Revoke a publisher")
    def destroy(self, request: Request, pk: Any) -> Response:
        event_credential_revoke(self.actor, event_credential_get(self.actor, pk))
        return Response(status=204)


class DeadLetterViewSet(ReadViewSet):
    """Received messages that were refused, with the reason."""

    queryset = DeadLetter.objects.none()
    tag = "events"
    serializer_class = DeadLetterOut
    filterset_class = DeadLetterFilters
    versioned = ("settled_at", "outcome")
    idempotent = ("retry", "dismiss")
    lists = ("List dead letters", dead_letters_visible)
    reads = ("One dead letter", dead_letter_get)

    @extend_schema(summary="Try a dead letter again")
    def retry(self, request: Request, pk: Any) -> Response:
        row = dead_letter_get(self.actor, pk)
        return self.once(request, lambda: self.answer(dead_letter_retry(self.actor, row)))

    @extend_schema(summary="Dismiss a dead letter")
    def dismiss(self, request: Request, pk: Any) -> Response:
        row = dead_letter_get(self.actor, pk)
        return self.once(request, lambda: self.answer(dead_letter_dismiss(self.actor, row)))


class TrainingStartedOut(serializers.Serializer[Any]):
    training_job_id = serializers.CharField(help_text="The id in its events: the request's, or a new one.")
    status = serializers.CharField()
    job_id = serializers.UUIDField(help_text="The job that trains, or that mirrors the training service.")
    mode = serializers.ChoiceField(choices=RequestMode.choices, help_text="Where the training runs.")
    selected = serializers.IntegerField(
        allow_null=True, help_text="Stored trajectories that match its filter; null: it has no filter."
    )
    unused = serializers.ListField(
        child=serializers.CharField(), help_text="Requested features that a training here ignores."
    )


class ModelOut(serializers.Serializer[Any]):
    model_id = serializers.CharField(help_text="The model's name in deployments: the agent and the release's number.")
    base_model = serializers.CharField(allow_null=True, help_text="Null: a policy of its own.")
    checkpoint_path = serializers.CharField(
        allow_null=True, help_text="Of its checkpoint: s3://… in a bucket, else its download; null without one."
    )
    training_date = serializers.DateTimeField(allow_null=True)
    digest = serializers.CharField(help_text="SHA-256 of its bundle.")
    serves = serializers.BooleanField(help_text="Whether it serves its agent now.")


class TrainingViewSet(ScopedViewSet):
    """Trainings by request, in the form of training services: here if a local learner can, else over NATS."""

    queryset = TrainingRequest.objects.none()
    tag = "events"
    serializer_class = TrainingStartedOut
    lookup_value_converter = "str"
    idempotent = ("create", "cancel")

    @extend_schema(
        summary="Start a training",
        description="The body is a payload of `agent.rl.training.request.v1` (docs/events); `training_job_id` may be"
        " left out. The same request twice is one.",
        request=OpenApiTypes.OBJECT,
    )
    def create(self, request: Request) -> Response:
        given: Any = request.data
        if not isinstance(given, dict):
            raise Invalid("The body is a JSON object.", fields={"request": "It is a JSON object."})
        return self.once(request, lambda: self._started(training_request(self.actor, given), status=201))

    @extend_schema(summary="The status of a training", responses=OpenApiTypes.OBJECT)
    def status(self, request: Request, pk: str) -> Response:
        """A payload of `agent.rl.training.status.v1` (docs/events)."""
        return Response(status_of(training_request_get(self.actor, pk)))

    @extend_schema(summary="Cancel a training")
    def cancel(self, request: Request, pk: str) -> Response:
        row = training_request_get(self.actor, pk)
        return self.once(request, lambda: self._started(training_request_cancel(self.actor, row)))

    def _started(self, row: TrainingRequest, *, status: int = 200) -> Response:
        values = {
            "training_job_id": row.training_job_id,
            "status": row.job.status,
            "job_id": row.job_id,
            "mode": row.mode,
            "selected": row.selected,
            "unused": unused_here(row.agent, row.request) if row.agent and row.mode == RequestMode.HERE else [],
        }
        return self.answer(values, status=status)


class ModelViewSet(ScopedViewSet):
    """Releases of agents as models to serve."""

    queryset = Release.objects.none()
    tag = "events"
    serializer_class = ModelOut

    @extend_schema(summary="List models")
    def list(self, request: Request) -> Response:
        rows = releases_visible(self.actor).select_related("checkpoint").prefetch_related("serves")
        page = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(ModelOut([_model(release) for release in page or ()], many=True).data)


def _model(release: Release) -> dict[str, Any]:
    return {
        "model_id": f"{release.agent.slug}-{release.number}",
        "base_model": (release.bundle.get("model") or {}).get("name") or None,
        "checkpoint_path": None if release.checkpoint is None else checkpoint_address(release.checkpoint),
        "training_date": None if release.checkpoint is None else release.checkpoint.created_at,
        "digest": release.digest,
        "serves": bool(release.serves.all()),
    }
