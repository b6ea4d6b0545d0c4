"""REST: prompt packs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.filters import Flag
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.schema import IDEMPOTENCY_KEY
from agentcore_site.rest.views import ScopedViewSet
from experiences.lessons.selectors import pack_get, packs_visible
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.lessons.stamps import pack_fault
from experiences.models import PromptPack

TAG = ["prompt packs"]


class SourceOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    sha256 = serializers.CharField()


class PackOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    domain = serializers.CharField()
    system = serializers.CharField()
    injections = serializers.ListField(child=serializers.CharField(), help_text="Texts that stand after it.")
    experience_slots = serializers.IntegerField(help_text="How many lessons it has room for.")
    max_words = serializers.IntegerField(help_text="Of each lesson.")
    sources = SourceOut(many=True, help_text="The files that it was loaded from; none if it was written here.")
    stamp = serializers.CharField(help_text="SHA-256 of its texts and sources.")
    stamp_fault = serializers.SerializerMethodField(help_text="Why it may not be used; empty where its stamp fits.")
    archived_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()

    def get_stamp_fault(self, row: PromptPack) -> str:
        return pack_fault(row)


class PackIn(Strict):
    name = serializers.CharField(max_length=60)
    domain = serializers.CharField(max_length=60, required=False, allow_blank=True)
    system = serializers.CharField(max_length=200_000, required=False, allow_blank=True, trim_whitespace=False)
    injections = serializers.ListField(
        child=serializers.CharField(max_length=200_000, trim_whitespace=False), max_length=100, required=False
    )
    experience_slots = serializers.IntegerField(required=False, min_value=0, max_value=1000)
    max_words = serializers.IntegerField(required=False, min_value=1, max_value=200)


class PackPatch(PackIn):
    name = serializers.CharField(max_length=60, required=False)
    keep_lessons = serializers.BooleanField(
        required=False, help_text="What was learned under the old text holds for the new one too."
    )


class PackFilters(filters.FilterSet):
    search = filters.CharFilter(field_name="name", lookup_expr="icontains", help_text="Text in the name.")
    domain = filters.CharFilter(field_name="domain")
    archived = Flag(
        field_name="archived_at", lookup_expr="isnull", exclude=True, help_text="Only archived, or only living."
    )

    class Meta:
        model = PromptPack
        fields: list[str] = []


NEW = OpenApiExample(
    "For diagnostics",
    {"name": "diagnostics", "domain": "diagnostics", "system": "You find out why a build fails.", "max_words": 32},
    request_only=True,
)


class PromptPackViewSet(ScopedViewSet):
    queryset = PromptPack.objects.none()
    filterset_class = PackFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "name": "name"}

    @extend_schema(summary="List prompt packs", tags=TAG, responses=PackOut(many=True))
    def list(self, request: Request) -> Response:
        return self.page(packs_visible(self.actor, archived=True), PackOut)

    @extend_schema(
        summary="Make a prompt pack",
        description="It is stamped: who makes it vouches for it.",
        tags=TAG,
        request=PackIn,
        responses={201: PackOut},
        parameters=[IDEMPOTENCY_KEY],
        examples=[NEW],
    )
    def create(self, request: Request) -> Response:
        values = parsed(PackIn, request.data)
        return self.once(request, lambda: Response(PackOut(pack_create(self.actor, **values)).data, status=201))

    @extend_schema(summary="One prompt pack", tags=TAG, responses=PackOut)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return Response(PackOut(pack_get(self.actor, pk)).data)

    @extend_schema(
        summary="Change a prompt pack",
        description="It is stamped anew. What was learned under the old text is left out, unless keep_lessons is set.",
        tags=TAG,
        request=PackPatch,
        responses=PackOut,
    )
    def partial_update(self, request: Request, pk: UUID) -> Response:
        values = parsed(PackPatch, request.data)
        return Response(PackOut(pack_update(self.actor, pack_get(self.actor, pk), **values)).data)

    @extend_schema(
        summary="Archive a prompt pack", description="Refused while agents use it.", tags=TAG, responses={204: None}
    )
    def destroy(self, request: Request, pk: UUID) -> Response:
        pack_archive(self.actor, pack_get(self.actor, pk))
        return Response(status=204)
