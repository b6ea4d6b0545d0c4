"""REST: deployments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import micros
from agentcore_site.lib.statistics import finite_or_none
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from evaluation.serving.deployments.filters import DeploymentFilters
from evaluation.serving.deployments.presenters import sentence_of, shown_deployment
from evaluation.serving.deployments.rules import HOUR, MARGIN, DeploymentRule, WhenOver
from evaluation.serving.deployments.selectors import deployment_get, deployments_visible
from evaluation.serving.deployments.services import (
    deployment_advance,
    deployment_pause,
    deployment_resume,
    deployment_roll_back,
    deployment_start,
)
from evaluation.serving.models import Deployment, DeploymentState, DeploymentStrategy
from evaluation.serving.releases.selectors import release_get

NEW = OpenApiExample(
    "A canary",
    value={"release": "0197f6c0-0000-7000-8000-000000000000", "strategy": "canary", "shares": [0.1, 0.25, 0.5]},
    request_only=True,
)


class DeploymentIn(Strict):
    release = serializers.UUIDField()
    strategy = serializers.ChoiceField(choices=DeploymentStrategy.choices)
    shares = serializers.ListField(
        child=serializers.FloatField(),
        required=False,
        help_text="Parts of the sessions that a canary gets, stage by stage; a shadow uses the first.",
    )
    minutes = serializers.FloatField(default=10, help_text="Minimum minutes of a stage.")
    sessions = serializers.IntegerField(default=50, help_text="Minimum sessions of the new release in a stage.")
    feedback_minutes = serializers.FloatField(
        default=10, help_text="Minutes until a whole session counts; with feedback its reward counts at once."
    )
    margin = serializers.FloatField(
        default=MARGIN,
        allow_null=True,
        help_text="A canary goes on once it is shown to be worse by less than that, in failures and in scores; null:"
        " by minutes and sessions alone.",
    )
    patience_hours = serializers.FloatField(default=24, help_text="Hours that a stage waits for this proof.")
    when_over = serializers.ChoiceField(
        choices=[(one.value, one.value) for one in WhenOver],
        default=WhenOver.ASK.value,
        help_text="After that a person decides, or the canary advances.",
    )
    watch_minutes = serializers.FloatField(default=30, help_text="Minutes of watching of blue-green, after its switch.")
    budget_usd = serializers.FloatField(default=5, help_text="Limit of the cost of a shadow's answers.")
    note = serializers.CharField(default="", allow_blank=True, max_length=300)
    override = serializers.CharField(
        default="", allow_blank=True, max_length=300, help_text="Reason to override the gate: admins only."
    )


class DeploymentNote(Strict):
    note = serializers.CharField(default="", allow_blank=True, max_length=300)


class DeploymentRow(Shape):
    id = serializers.UUIDField()
    agent = serializers.CharField(help_text="The agent's slug.")
    release = serializers.UUIDField(source="release_id")
    release_number = serializers.IntegerField()
    previous = serializers.UUIDField(source="previous_id", allow_null=True, help_text="The release that served before.")
    strategy = serializers.ChoiceField(choices=DeploymentStrategy.choices)
    state = serializers.ChoiceField(choices=DeploymentState.choices)
    share = serializers.FloatField(help_text="The part of the sessions that the release gets.")
    step = serializers.IntegerField()
    sentence = serializers.CharField(help_text="Its status, as a sentence.")
    reason = serializers.CharField(help_text="Reason of its rollback.")
    asked_at = serializers.DateTimeField(allow_null=True, help_text="Time since which this stage waits for a person.")
    note = serializers.CharField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    computed = {
        "agent": lambda row: row.agent.slug,
        "release_number": lambda row: row.release.number,
        "sentence": sentence_of,
    }


class GuardrailOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    current = serializers.FloatField(allow_null=True, help_text="The mean of the current release.")
    new = serializers.FloatField(allow_null=True)
    difference = serializers.FloatField(allow_null=True, help_text="New minus current.")
    low = serializers.FloatField(allow_null=True, help_text="Of the interval over all analyses; null: too few.")
    high = serializers.FloatField(allow_null=True)
    e_value = serializers.FloatField(allow_null=True)


class NoWorseOut(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="failures or score.")
    margin = serializers.FloatField()
    e_value = serializers.FloatField(help_text="Evidence that it is worse by less than the margin; 20 is enough.")
    shown = serializers.BooleanField()


class DeploymentEventOut(serializers.Serializer[Any]):
    kind = serializers.CharField()
    share = serializers.FloatField()
    note = serializers.CharField()
    by = serializers.CharField(source="by.username", default=None, allow_null=True, help_text="Null: its rule.")
    at = serializers.DateTimeField()


class DeploymentDetail(DeploymentRow):
    rule = serializers.JSONField(help_text="Its stages, and their conditions.")
    verdict = serializers.JSONField(help_text="The gate's verdict at its begin.")
    sessions = serializers.IntegerField(help_text="Number of counted sessions, of both releases.")
    new_sessions = serializers.IntegerField()
    e_value = serializers.FloatField(allow_null=True, help_text="Of all guardrails together; at 20 it is rolled back.")
    waits_for = serializers.CharField(help_text="Conditions of its next automatic step.")
    guardrails = GuardrailOut(many=True)
    no_worse = NoWorseOut(many=True, help_text="Proofs of non-inferiority that a canary needs to advance.")
    events = DeploymentEventOut(many=True)

    computed = DeploymentRow.computed | {
        "sessions": lambda row: shown_deployment(row).sessions,
        "new_sessions": lambda row: shown_deployment(row).new,
        "e_value": lambda row: finite_or_none(shown_deployment(row).e_value),
        "waits_for": lambda row: shown_deployment(row).waits_for,
        "guardrails": lambda row: GuardrailOut(shown_deployment(row).rows, many=True).data,
        "no_worse": lambda row: NoWorseOut(shown_deployment(row).no_worse, many=True).data,
        "events": lambda row: DeploymentEventOut(row.events.select_related("by"), many=True).data,
    }


class DeploymentViewSet(ReadViewSet):
    """Deployments of releases: their progress, evidence and result."""

    queryset = Deployment.objects.none()
    tag = "deployments"
    serializer_class = DeploymentDetail
    filterset_class = DeploymentFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at"}
    versioned = ("state", "share", "step")
    list_class = DeploymentRow
    lists = ("List deployments", lambda actor: deployments_visible(actor).defer("monitor"))
    reads = ("One deployment", deployment_get)

    @extend_schema(summary="Deploy a release", request=DeploymentIn, examples=[NEW])
    def create(self, request: Request) -> Response:
        """The only thing that changes what is served. Refused with the gate's sentence where it says no."""
        values = parsed(DeploymentIn, request.data)

        def work() -> Response:
            release = release_get(self.actor, values["release"])
            made = deployment_start(
                self.actor,
                release,
                strategy=values["strategy"],
                rule=_rule(values),
                note=values["note"],
                override=values["override"],
            )
            return self.answer(made, status=201)

        return self.once(request, work)

    @extend_schema(summary="Pause a deployment", request=DeploymentNote)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: UUID) -> Response:
        return self._done(deployment_pause, request, pk)

    @extend_schema(summary="Resume a deployment", request=DeploymentNote)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: UUID) -> Response:
        return self._done(deployment_resume, request, pk)

    @extend_schema(summary="Take a deployment's next step now", request=DeploymentNote)
    @action(detail=True, methods=["post"])
    def advance(self, request: Request, pk: UUID) -> Response:
        return self._done(deployment_advance, request, pk)

    @extend_schema(summary="Take a release back", request=DeploymentNote)
    @action(detail=True, methods=["post"], url_path="roll-back")
    def roll_back(self, request: Request, pk: UUID) -> Response:
        return self._done(deployment_roll_back, request, pk)

    def _done(self, service: Callable[..., None], request: Request, pk: UUID) -> Response:
        found = deployment_get(self.actor, pk)
        service(self.actor, found, note=parsed(DeploymentNote, request.data)["note"])
        return self.answer(deployment_get(self.actor, pk))


def _rule(values: dict[str, Any]) -> DeploymentRule:
    """Raises Invalid."""
    try:
        return DeploymentRule.canary(
            values.get("shares") or [stage.share for stage in DeploymentRule().stages],
            values["minutes"],
            values["sessions"],
            feedback_minutes=values["feedback_minutes"],
            watch_minutes=values["watch_minutes"],
            budget_micros=micros(values["budget_usd"]),
            margin=values["margin"],
            patience_minutes=values["patience_hours"] * HOUR,
            when_over=values["when_over"],
        )
    except ValueError as error:
        raise Invalid(str(error), fields={"shares": str(error)}) from error
