"""REST: saved views of the console's lists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import QueryDict
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.console.saved import view_change, view_of, view_remove, view_save, views_visible
from agentcore_site.models import SavedView
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape


class SavedViewOut(Shape):
    id = serializers.UUIDField()
    page = serializers.CharField(help_text="The name of the list, e.g. `training:jobs`.")
    name = serializers.CharField()
    query = serializers.CharField(help_text="What it asks of the list: search, filters and order, as in an address.")
    address = serializers.CharField(help_text="Of the list with it, in the console.")
    shared = serializers.BooleanField(help_text="Whether all of the organisation see it over the list.")
    opens = serializers.BooleanField(help_text="Whether the list opens with it for its person.")
    by = serializers.CharField(help_text="Whose it is; only this person changes it.")
    created_at = serializers.DateTimeField()

    computed = {"query": lambda row: query_of(row.asked), "by": lambda row: row.person.username}


class SavedViewIn(Strict):
    page = serializers.CharField(max_length=60)
    name = serializers.CharField(max_length=60)
    query = serializers.CharField(max_length=4_000, required=False, allow_blank=True, default="")
    shared = serializers.BooleanField(default=False)
    opens = serializers.BooleanField(default=False)


class SavedViewPatch(Strict):
    name = serializers.CharField(max_length=60, required=False)
    shared = serializers.BooleanField(required=False)
    opens = serializers.BooleanField(required=False)


class SavedViewFilters(filters.FilterSet):
    page = filters.CharFilter(field_name="page", help_text="The name of a list, e.g. `training:jobs`.")

    class Meta:
        model = SavedView
        fields: list[str] = []


NEW = OpenApiExample(
    "Jobs that failed, the most expensive first",
    {"page": "training:jobs", "name": "Dear failures", "query": "status=failed&sort=cost", "shared": True},
    request_only=True,
)


class SavedViewViewSet(ReadViewSet):
    """Saved views of the console's lists: your own, and those shared by others of the organisation."""

    queryset = SavedView.objects.none()
    tag = "saved views"
    serializer_class = SavedViewOut
    filterset_class = SavedViewFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "name": "name"}
    versioned = ("name", "query", "shared", "opens")
    lists = ("List saved views", lambda actor: views_visible(actor).select_related("person"))
    reads = ("One saved view", view_of)

    @extend_schema(summary="Save a view of a list", request=SavedViewIn, examples=[NEW])
    def create(self, request: Request) -> Response:
        """To share it needs the right to edit agents."""
        values = parsed(SavedViewIn, request.data)
        return self.made(request, lambda: view_save(self.actor, **values))

    @extend_schema(
        summary="Rename a saved view, share it, or open its list with it",
        description="What it asks never changes: save another one.",
        request=SavedViewPatch,
    )
    def partial_update(self, request: Request, pk: UUID) -> Response:
        values, view = parsed(SavedViewPatch, request.data), view_of(self.actor, pk)
        kept: dict[str, Any] = {"name": view.name, "shared": view.shared, "opens": view.opens}
        return self.answer(view_change(self.actor, view, **kept | values))

    @extend_schema(summary="Remove a saved view")
    def destroy(self, request: Request, pk: UUID) -> Response:
        view_remove(self.actor, view_of(self.actor, pk))
        return Response(status=204)


def query_of(asked: dict[str, list[str]]) -> str:
    query = QueryDict(mutable=True)
    for name, values in asked.items():
        query.setlist(name, values)
    return query.urlencode()
