"""REST: what agents learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import FileParser, JsonParser, Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from experiences.lessons.api.importing import IMPORT, ImportedOut, ImportFile, ImportIn, read_import
from experiences.lessons.filters import ExperienceFilters
from experiences.lessons.selectors import experience_changes, experience_get, experiences_visible, fetch_top
from experiences.lessons.services.importing import record_batch
from experiences.lessons.services.lessons import (
    experience_approve,
    experience_edit,
    experience_prune,
    experience_quarantine,
    experience_reject,
    experience_restore,
)
from experiences.lessons.services.merging import experience_merge
from experiences.lessons.shapes import ExperienceOut
from experiences.lessons.stamps import Stamp, stamps
from experiences.models import Experience
from experiences.models.agent_lookup import agent_get


class ChangeOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    action = serializers.CharField()
    version = serializers.IntegerField()
    before = serializers.CharField()
    after = serializers.CharField()
    why = serializers.CharField()
    by = serializers.CharField(help_text="A person, or the iteration of a job.")
    job_id = serializers.UUIDField(allow_null=True)


class ExperienceDetail(ExperienceOut):
    stamp_fault = serializers.SerializerMethodField(help_text="Why no agent receives it; empty where its stamp fits.")
    prompt_pack_id = serializers.SerializerMethodField(
        help_text="The prompt pack for which it holds, by its stamp; null: the agent's system prompt, or none."
    )
    history = ChangeOut(many=True, read_only=True, help_text="The last change first.")

    computed = {"history": experience_changes}

    def get_stamp_fault(self, row: Experience) -> str:
        return self._stamp.fault

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_prompt_pack_id(self, row: Experience) -> UUID | None:
        return None if self._stamp.pack is None else self._stamp.pack.pk

    @cached_property
    def _stamp(self) -> Stamp:
        """Read once for all that is said of it: the serializer is of one row."""
        row = cast(Experience, self.instance)
        return stamps([row])[row.pk]


class ActionIn(Strict):
    why = serializers.CharField(max_length=2000, required=False, allow_blank=True, help_text="For the history.")
    version = serializers.IntegerField(
        required=False, min_value=1, help_text="The one that was read: with another one now, nothing is done (409)."
    )


class ExperiencePatch(ActionIn):
    summary = serializers.CharField(
        max_length=1000, required=False, help_text="The new text. The caller vouches for it: it is stamped again."
    )


class TopQuery(Strict):
    agent = serializers.CharField(max_length=100, required=False, help_text="Of this agent, by id or slug.")
    domain = serializers.CharField(max_length=60, required=False)
    min_reward = serializers.FloatField(required=False, help_text="Least mean reward of the rollouts that taught it.")
    limit = serializers.IntegerField(min_value=1, max_value=200, default=20)


class RefusedOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="experience.id")
    reason = serializers.CharField(help_text="Why no agent receives it.")


class TopOut(serializers.Serializer[Any]):
    results = ExperienceOut(many=True, source="rows")
    refused = RefusedOut(many=True, help_text="Lessons that are left out: their stamp does not fit.")


EDIT = OpenApiExample(
    "Another wording",
    {"summary": "When a sum has more than two terms, add them one at a time.", "version": 1},
    request_only=True,
)


class ExperienceViewSet(ReadViewSet):
    queryset = Experience.objects.none()
    tag = "experiences"
    serializer_class = ExperienceDetail
    filterset_class = ExperienceFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "weight": "weight", "tokens": "tokens", "rollouts": "rollouts"}
    known_query = {"top": ("agent", "domain", "min_reward", "limit")}
    versioned = ("status", "version")
    idempotent = ("bring", "restore", "prune", "quarantine", "approve", "reject", "merge")
    list_class = ExperienceOut
    lists = ("List the lessons of agents", experiences_visible)
    reads = ("One lesson, with its history", experience_get)

    @extend_schema(summary="The active lessons that add most to the reward", parameters=[TopQuery], responses=TopOut)
    @action(detail=False, pagination_class=None)
    def top(self, request: Request) -> Response:
        """The largest measured effect first; what was not measured yet comes last."""
        asked = parsed(TopQuery, request.query_params.dict())
        if "agent" in asked:
            asked["agent"] = agent_get(self.actor, asked["agent"])
        return Response(TopOut(fetch_top(self.actor, **asked)).data)

    @extend_schema(
        summary="Import lessons that others stamped",
        description="As JSON, or as a file of JSON Lines in `multipart/form-data`: lessons as the list gives them, from"
        " an agent with the same prompt. All of them or none; what the agent has already stays as it is.",
        request={"application/json": ImportIn, "multipart/form-data": ImportFile},
        responses=ImportedOut,
        examples=[IMPORT],
    )
    @action(detail=False, methods=["post"], url_path="import", parser_classes=[JsonParser, FileParser])
    def bring(self, request: Request) -> Response:
        ref, records = read_import(request)
        agent = agent_get(self.actor, ref)
        return self.once(request, lambda: Response(ImportedOut(record_batch(self.actor, records, agent=agent)).data))

    @extend_schema(summary="Change a lesson's text", request=ExperiencePatch, examples=[EDIT])
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Its version rises, it is stamped, and what was measured of the old text is put aside."""
        values = parsed(ExperiencePatch, request.data)
        return self.answer(experience_edit(self.actor, experience_get(self.actor, pk), **values))

    @extend_schema(summary="Bring a pruned lesson back", request=ActionIn)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: UUID) -> Response:
        return self._act(request, pk, experience_restore)

    @extend_schema(summary="Take a lesson out", request=ActionIn)
    @action(detail=True, methods=["post"])
    def prune(self, request: Request, pk: UUID) -> Response:
        return self._act(request, pk, experience_prune)

    @extend_schema(
        summary="Put a lesson in quarantine",
        description="No agent receives it until a person approves it.",
        request=ActionIn,
    )
    @action(detail=True, methods=["post"])
    def quarantine(self, request: Request, pk: UUID) -> Response:
        return self._act(request, pk, experience_quarantine)

    @extend_schema(summary="Let a lesson out of quarantine", request=ActionIn)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: UUID) -> Response:
        return self._act(request, pk, experience_approve)

    @extend_schema(summary="Refuse a lesson in quarantine", request=ActionIn)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: UUID) -> Response:
        """It can be brought back."""
        return self._act(request, pk, experience_reject)

    @extend_schema(
        summary="Merge the lessons that say the same to the agent",
        description="The newest keeps its handle and is answered; the rollouts that saw them add up, and the others are"
        " taken out.",
        request=ActionIn,
    )
    @action(detail=True, methods=["post"])
    def merge(self, request: Request, pk: UUID) -> Response:
        return self._act(request, pk, experience_merge)

    def _act(self, request: Request, pk: UUID, service: Callable[..., Experience]) -> Response:
        values = parsed(ActionIn, request.data)
        row = experience_get(self.actor, pk)
        return self.once(request, lambda: self.answer(service(self.actor, row, **values)))
