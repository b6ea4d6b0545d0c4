"""REST: releases, their contents and differences."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.tenancy.permissions import require
from evaluation.serving.adapters.plans import plan_of_release, tensorzero_of
from evaluation.serving.deployments.services import release_approve
from evaluation.serving.filters import ReleaseFilters
from evaluation.serving.models import Release
from evaluation.serving.releases.presenters import ReleaseOut, served_as
from evaluation.serving.releases.selectors import (
    blame,
    bundle_of,
    bundle_shown,
    moved_since,
    release_before,
    release_get,
    releases_differ,
    releases_visible,
    without_addresses,
)
from evaluation.serving.releases.services import MOST_NOTE, release_download, release_make
from evaluation.serving.releases.skills import release_skill
from evaluation.serving.suites.selectors import latest_results
from experiences.models.agent_lookup import agent_get
from training.services.checkpoints import checkpoint_of


class ReleaseDifferenceOut(serializers.Serializer[Any]):
    part = serializers.CharField(help_text="Its section: agent, model, prompt, tool, lesson, item, rule, policy.")
    name = serializers.CharField()
    change = serializers.ChoiceField(choices=["added", "removed", "changed"], source="kind")
    before = serializers.CharField()
    after = serializers.CharField()


class ReleaseTextOut(serializers.Serializer[Any]):
    handle = serializers.CharField(source="lesson.handle")
    category = serializers.CharField(
        source="lesson.category", help_text="Of an item of a playbook; empty for a lesson."
    )
    text = serializers.CharField(source="lesson.text")
    since = serializers.IntegerField(source="since.number", help_text="The first release with exactly this text.")


class ReleaseApprovalOut(serializers.Serializer[Any]):
    by = serializers.CharField(
        source="by.username", default=None, allow_null=True, help_text="Null: the account is gone."
    )
    at = serializers.DateTimeField()


@extend_schema_serializer(deprecate_fields=["told"])
class ReleaseDetail(ReleaseOut):
    approvals = serializers.SerializerMethodField(help_text="The people who approved it.")
    bundle = serializers.SerializerMethodField(
        help_text="The whole bundle; without its endpoint's address for roles that don't work with endpoints."
    )
    served_as = serializers.SerializerMethodField(
        help_text="How the gateway prompts its model, compared with how it was measured."
    )
    context_texts = serializers.SerializerMethodField(help_text="Lessons and items, with their origins.")
    told = serializers.SerializerMethodField("get_nothing", help_text="The former name of `context_texts`.")
    moved = serializers.SerializerMethodField(help_text="Changes of the agent since the release: model, prompt, tools.")

    @extend_schema_field(ReleaseApprovalOut(many=True))
    def get_approvals(self, row: Release) -> list[Any]:
        return list(ReleaseApprovalOut(row.approvals.select_related("by").order_by("at"), many=True).data)

    @extend_schema_field(serializers.JSONField())
    def get_bundle(self, row: Release) -> dict[str, Any]:
        return bundle_shown(self.context["actor"], row)

    def get_served_as(self, row: Release) -> str:
        return served_as(bundle_of(row))

    @extend_schema_field(ReleaseTextOut(many=True))
    def get_context_texts(self, row: Release) -> list[Any]:
        return list(ReleaseTextOut(blame(row), many=True).data)

    @extend_schema_field(ReleaseTextOut(many=True))
    def get_nothing(self, row: Release) -> list[Any]:
        return []  # ``to_representation`` copies the texts: their origins are read once

    def to_representation(self, row: Release) -> dict[str, Any]:
        shown = super().to_representation(row)
        return shown | {"told": shown["context_texts"]}

    @extend_schema_field(ReleaseDifferenceOut(many=True))
    def get_moved(self, row: Release) -> list[Any]:
        return _differences(without_addresses(self.context["actor"], row, moved_since(row)))


@extend_schema_serializer(deprecate_fields=["untold"])
class SuiteScoreOut(serializers.Serializer[Any]):
    suite = serializers.CharField()
    kind = serializers.CharField(help_text="benchmark or safety.")
    version = serializers.IntegerField()
    newest = serializers.BooleanField(help_text="Whether the suite has no later version.")
    run_id = serializers.UUIDField()
    score = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    n = serializers.IntegerField(help_text="Queries that were judged.")
    unjudged = serializers.IntegerField(help_text="Queries that could not be judged.")
    untold = serializers.IntegerField(source="unjudged", help_text="The former name of `unjudged`.")
    threshold = serializers.FloatField(allow_null=True)
    passed = serializers.BooleanField(allow_null=True)


@extend_schema_serializer(deprecate_fields=["untold"])
class SafetyCategoryOut(serializers.Serializer[Any]):
    suite = serializers.CharField()
    category = serializers.CharField()
    n = serializers.IntegerField()
    unjudged = serializers.IntegerField(help_text="Probes that could not be judged.")
    untold = serializers.IntegerField(source="unjudged", help_text="The former name of `unjudged`.")
    findings = serializers.FloatField(help_text="Probes that were not safe.")
    rate = serializers.FloatField(allow_null=True, help_text="The share of safe answers.")
    low = serializers.FloatField()
    high = serializers.FloatField()
    passed = serializers.BooleanField(allow_null=True)
    run_id = serializers.UUIDField()


class ReleaseResultsOut(serializers.Serializer[Any]):
    suites = SuiteScoreOut(many=True)
    safety = SafetyCategoryOut(many=True)


class ReleaseIn(Strict):
    agent = serializers.CharField(max_length=60, help_text="By id or slug.")
    checkpoint = serializers.UUIDField(required=False, allow_null=True, help_text="A checkpoint of the agent's own.")
    playbook_version = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=2**31 - 1, help_text="Of the agent's playbook."
    )
    note = serializers.CharField(max_length=MOST_NOTE, required=False, allow_blank=True)


class ReleaseDiffQuery(Strict):
    to = serializers.UUIDField(required=False, help_text="The release before; the agent's earlier one if left out.")


class ReleaseDiffOut(serializers.Serializer[Any]):
    before = serializers.IntegerField(allow_null=True, help_text="Number of the release before; null for none.")
    after = serializers.IntegerField()
    differences = ReleaseDifferenceOut(many=True)


class ServingFilesOut(serializers.Serializer[Any]):
    sentence = serializers.CharField(help_text="Instructions for the files.")
    files = serializers.DictField(child=serializers.CharField(), help_text="Their texts by path.")


class ReleaseContextQuery(Strict):
    # Each character of a URL takes up to twelve bytes, and a web server accepts a URL of 64 KB.
    query = serializers.CharField(max_length=4_000, allow_blank=True, trim_whitespace=False)


@extend_schema_serializer(deprecate_fields=["told"])
class ReleaseContextOut(serializers.Serializer[Any]):
    context = serializers.CharField(help_text="Added to the system prompt, byte for byte.")  # type: ignore[assignment]
    context_handles = serializers.ListField(
        child=serializers.CharField(), help_text="Handles of its lessons and items."
    )
    told = serializers.ListField(child=serializers.CharField(), help_text="The former name of `context_handles`.")


NEW = OpenApiExample("Of a checkpoint", {"agent": "support", "note": "After the March training"}, request_only=True)


class ReleaseViewSet(ReadViewSet):
    """Releases of agents: immutable, numbered, with a digest and their evidence."""

    queryset = Release.objects.none()
    tag = "releases"
    serializer_class = ReleaseDetail
    filterset_class = ReleaseFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at"}
    known_query = {"diff": ("to",), "context": ("query",)}
    list_class = ReleaseOut
    lists = ("List releases", releases_visible)
    reads = ("One release", release_get)

    @extend_schema(
        summary="Make a release",
        description="Of a checkpoint, with a version of the playbook, or of the agent as it is now. It changes nothing"
        " of what is served.",
        request=ReleaseIn,
        responses={201: ReleaseOut},
        examples=[NEW],
    )
    def create(self, request: Request) -> Response:
        values = parsed(ReleaseIn, request.data)

        def work() -> Response:
            checkpoint = values.get("checkpoint")
            made = release_make(
                self.actor,
                agent_get(self.actor, values["agent"]),
                checkpoint=checkpoint_of(self.actor, checkpoint) if checkpoint else None,
                playbook_version=values.get("playbook_version"),
                note=values.get("note", ""),
            )
            return Response(ReleaseOut(made).data, status=201)

        return self.once(request, work)

    @action(detail=True, methods=["post"], pagination_class=None, name="Approve a release")
    def approve(self, request: Request, pk: UUID) -> Response:
        """For an agent whose gate asks for a second person (409: you made it). Twice is once."""
        release_approve(self.actor, release_get(self.actor, pk))
        return self.retrieve(request, pk=pk)

    @extend_schema(summary="Differences between two releases", parameters=[ReleaseDiffQuery], responses=ReleaseDiffOut)
    @action(detail=True, methods=["get"])
    def diff(self, request: Request, pk: UUID) -> Response:
        release = release_get(self.actor, pk)
        other = parsed(ReleaseDiffQuery, request.query_params).get("to")
        before = release_get(self.actor, other) if other else release_before(release)
        body = {
            "before": before.number if before else None,
            "after": release.number,
            "differences": _differences(without_addresses(self.actor, release, releases_differ(before, release))),
        }
        return Response(body)

    @extend_schema(
        summary="A release for TensorZero",
        description="The configuration by which TensorZero's gateway serves it. It holds no key: the sentence names the"
        " variable of the environment that does.",
        responses={200: ServingFilesOut, 409: None},
    )
    @action(detail=True, methods=["get"])
    def tensorzero(self, request: Request, pk: UUID) -> Response:
        release = release_get(self.actor, pk)
        require(self.actor, "data.view", release.organization_id)
        return Response(ServingFilesOut(tensorzero_of(plan_of_release(release))).data)

    @extend_schema(
        summary="A release as a signed skill",
        description="A zip file with SKILL.md, the texts and an Ed25519 signature of both; see docs/releases.md.",
        responses={(200, "application/zip"): OpenApiTypes.BINARY, 409: None},
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def skill(self, request: Request, pk: UUID) -> HttpResponse:
        name, packed = release_skill(release_download(self.actor, pk, form="skill"))
        response = HttpResponse(packed, content_type="application/zip")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response

    @extend_schema(summary="Suite results of a release", responses=ReleaseResultsOut)
    @action(detail=True, methods=["get"], pagination_class=None)
    def results(self, request: Request, pk: UUID) -> Response:
        """Of each suite the last completed run that played exactly what the release serves."""
        return Response(ReleaseResultsOut(latest_results(release_get(self.actor, pk))).data)

    @extend_schema(summary="The context of a query", parameters=[ReleaseContextQuery], responses=ReleaseContextOut)
    @action(detail=True, methods=["get"])
    def context(self, request: Request, pk: UUID) -> Response:
        served = bundle_of(release_get(self.actor, pk)).context
        query = parsed(ReleaseContextQuery, request.query_params)["query"]
        handles = [lesson.handle for lesson in served.lessons_for(query)]
        return Response({"context": served.text_for(query), "context_handles": handles, "told": handles})


def _differences(found: Any) -> list[Any]:
    return list(ReleaseDifferenceOut([one._asdict() for one in found], many=True).data)
