"""REST: prompt packs."""

from __future__ import annotations

from functools import partial

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from agentcore_site.rest.filters import Flag
from agentcore_site.rest.parsing import Strict
from agentcore_site.rest.rows import ArchivableViewSet, RowOperations
from experiences.lessons.selectors import pack_get, packs_visible
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.lessons.shapes import PackOut
from experiences.models import PromptPack


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


class PromptPackViewSet(ArchivableViewSet):
    queryset = PromptPack.objects.none()
    filterset_class = PackFilters
    lookup_value_converter = "uuid"
    operations = RowOperations(
        "a prompt pack",
        shapes=(PackOut, PackIn, PackPatch),
        reads=(partial(packs_visible, archived=True), pack_get),
        writes=(pack_create, pack_update, pack_archive),
    )
    documented = {
        "create": {"description": "It is stamped: who makes it vouches for it.", "examples": [NEW]},
        "partial_update": {
            "description": "It is stamped again. What was learned under the old text is left out, unless keep_lessons"
            " is set."
        },
        "destroy": {"description": "Refused while agents use it."},
    }
