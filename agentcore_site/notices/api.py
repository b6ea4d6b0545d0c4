"""REST: webhooks with their log, and one's own notices."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.notices.catalogue import CHOICES
from agentcore_site.notices.models import (
    EndpointFormat,
    Notice,
    NoticePreferences,
    WebhookDelivery,
    WebhookEndpoint,
    Whose,
)
from agentcore_site.notices.selectors import (
    deliveries_of,
    delivery_get,
    endpoint_get,
    endpoints_visible,
    notices_visible,
    preferences_of,
)
from agentcore_site.notices.services import (
    MadeEndpoint,
    delivery_again,
    endpoint_create,
    endpoint_remove,
    endpoint_rotate,
    endpoint_test,
    endpoint_update,
    notices_read,
    preferences_set,
)
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import current_organization

TYPES = ", ".join(name for name, _ in CHOICES)
NEW = OpenApiExample(
    "Failures only",
    {"name": "on-call", "url": "https://hooks.example.org/agentcore", "types": ["job.failed", "job.paused"]},
    request_only=True,
)


class WebhookEndpointOut(Shape):
    """The secret is never given out again. Of a chat's address only the host is."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    format = serializers.ChoiceField(choices=EndpointFormat.choices)
    url = serializers.CharField()
    types = serializers.ListField(child=serializers.CharField(), help_text="None: all.")
    on = serializers.BooleanField()
    own = serializers.BooleanField(read_only=True, help_text="Whether it is the person's and not the organisation's.")
    failing_since = serializers.DateTimeField(allow_null=True)
    off_reason = serializers.CharField()
    former_until = serializers.DateTimeField(allow_null=True, help_text="Until when the former secret signs too.")
    created_at = serializers.DateTimeField()

    computed = {"own": lambda endpoint: endpoint.user_id is not None}


class NewWebhookEndpointOut(WebhookEndpointOut):
    secret = serializers.CharField(help_text="Shown this once; empty for chats, which check none.")


class WebhookEndpointPatch(Strict):
    name = serializers.CharField(max_length=80, required=False)
    url = serializers.CharField(max_length=500, required=False)
    types = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=50, required=False, help_text=f"Of: {TYPES}. None: all."
    )
    on = serializers.BooleanField(required=False)


class WebhookEndpointIn(Strict):
    name = serializers.CharField(max_length=80)
    url = serializers.CharField(max_length=500)
    types = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=50, required=False, help_text=f"Of: {TYPES}. None: all."
    )
    format = serializers.ChoiceField(choices=EndpointFormat.choices, required=False)
    own = serializers.BooleanField(required=False, help_text="The person's: it is sent what concerns them.")


class WebhookTestOut(Shape):
    ok = serializers.BooleanField(read_only=True)
    problem = serializers.CharField(help_text="Why it was not taken; empty where it was.")
    status = serializers.IntegerField(allow_null=True)
    duration_ms = serializers.IntegerField()

    computed = {"ok": lambda done: not done.problem}


class WebhookAttemptOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, help_text="Of HTTP; null where none came.")
    duration_ms = serializers.IntegerField()
    answer = serializers.CharField(help_text="How the answer begins, where it is text or JSON.")
    error = serializers.CharField()
    next_at = serializers.DateTimeField(allow_null=True)


class WebhookDeliveryOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    event_id = serializers.UUIDField(help_text="The `webhook-id` of every attempt.")
    type = serializers.CharField(source="event.type")
    text = serializers.CharField(source="event.text")
    tries = serializers.IntegerField()
    try_after = serializers.DateTimeField()
    taken_at = serializers.DateTimeField(allow_null=True)
    given_up_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    attempts = WebhookAttemptOut(many=True)


class WebhookEndpointViewSet(ReadViewSet):
    """Webhooks of the organisation, for those who may edit them, and one's own."""

    queryset = WebhookEndpoint.objects.none()
    tag = "webhooks"
    serializer_class = WebhookEndpointOut
    lookup_value_converter = "uuid"
    versioned = ("name", "format", "url", "types", "on", "former_until")
    known_query = {"deliveries": ("cursor", "limit")}
    shown_once = {"create": "secret"}
    lists = ("List webhooks", endpoints_visible)
    reads = ("One webhook", endpoint_get)

    @extend_schema(
        summary="Make a webhook", request=WebhookEndpointIn, responses={201: NewWebhookEndpointOut}, examples=[NEW]
    )
    def create(self, request: Request) -> Response:
        values, organization = parsed(WebhookEndpointIn, request.data), current_organization(self.actor)
        return self.once(request, lambda: _made(endpoint_create(self.actor, organization, **values), status=201))

    @extend_schema(summary="Change a webhook", request=WebhookEndpointPatch)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        values = parsed(WebhookEndpointPatch, request.data)
        row = endpoint_update(self.actor, endpoint_get(self.actor, pk), **values)
        return self.answer(row)

    @extend_schema(summary="Remove a webhook")
    def destroy(self, request: Request, pk: UUID) -> Response:
        endpoint_remove(self.actor, endpoint_get(self.actor, pk))
        return Response(status=204)

    @extend_schema(summary="Send a test event", responses=WebhookTestOut)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: UUID) -> Response:
        """By the way of all others, at once; it is in the log, and not repeated."""
        return Response(WebhookTestOut(endpoint_test(self.actor, endpoint_get(self.actor, pk))).data)

    @extend_schema(summary="Make another signing secret", responses=NewWebhookEndpointOut)
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: UUID) -> Response:
        """The former one signs too for a day, so that a receiver can change over."""
        return _made(endpoint_rotate(self.actor, endpoint_get(self.actor, pk)))

    @extend_schema(summary="Deliveries of a webhook", responses=WebhookDeliveryOut(many=True))
    @action(detail=True)
    def deliveries(self, request: Request, pk: UUID) -> Response:
        rows = deliveries_of(endpoint_get(self.actor, pk))
        found = self.paginate_queryset(rows)
        return self.get_paginated_response(WebhookDeliveryOut(found, many=True).data)


class WebhookDeliveryViewSet(ScopedViewSet):
    """Events as they were sent to webhooks."""

    queryset = WebhookDelivery.objects.none()
    tag = "webhooks"
    serializer_class = WebhookDeliveryOut
    lookup_value_converter = "uuid"

    @extend_schema(summary="One delivery, with its attempts")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self.answer(delivery_get(self.actor, pk))

    @extend_schema(summary="Send an event again", responses={204: None})
    @action(detail=True, methods=["post"])
    def again(self, request: Request, pk: UUID) -> Response:
        """By the same id, within seconds, also where it was taken or given up."""
        delivery_again(self.actor, delivery_get(self.actor, pk))
        return Response(status=204)


def _made(made: MadeEndpoint, *, status: int = 200) -> Response:
    return Response({**WebhookEndpointOut(made.endpoint).data, "secret": made.secret}, status=status)


class NoticeFilters(filters.FilterSet):
    unread = Flag(method="only_unread", help_text="true: those not read yet; false: those that were.")
    type = filters.CharFilter(field_name="event__type", help_text="Exactly this event type, such as job.failed.")

    class Meta:
        model = Notice
        fields: list[str] = []

    def only_unread(self, rows: QuerySet[Any], name: str, value: bool) -> QuerySet[Any]:
        return rows.filter(read_at__isnull=value)


class NoticeOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    event_id = serializers.UUIDField()
    type = serializers.CharField(source="event.type")
    text = serializers.CharField(source="event.text")
    path = serializers.CharField(source="event.path", help_text="Of the console's page about it.")
    data = serializers.JSONField(source="event.data")  # type: ignore[assignment]
    created_at = serializers.DateTimeField()
    read_at = serializers.DateTimeField(allow_null=True)


class NoticesReadIn(Strict):
    ids = serializers.ListField(
        child=serializers.UUIDField(), max_length=1000, required=False, help_text="Without: all of them."
    )


class NoticesReadOut(serializers.Serializer[Any]):
    read = serializers.IntegerField(help_text="How many were not read before.")


class NoticeViewSet(ScopedViewSet):
    """My own notices, as the bell has them."""

    queryset = Notice.objects.none()
    tag = "notices"
    serializer_class = NoticeOut
    filterset_class = NoticeFilters

    @extend_schema(summary="My notices")
    def list(self, request: Request) -> Response:
        return self.page(notices_visible(self.actor), NoticeOut)

    @extend_schema(summary="Mark my notices as read", request=NoticesReadIn, responses=NoticesReadOut)
    @action(detail=False, methods=["post"], pagination_class=None)
    def read(self, request: Request) -> Response:
        values = parsed(NoticesReadIn, request.data)
        return Response({"read": notices_read(self.actor, values.get("ids"))})


class NoticePreferencesOut(serializers.Serializer[Any]):
    whose = serializers.ChoiceField(choices=Whose.choices, help_text="Of which jobs, budgets and releases.")
    agents = serializers.ListField(child=serializers.UUIDField(), help_text="Chosen ones, where they are asked for.")
    bell = serializers.ListField(child=serializers.CharField(), help_text="Types that the bell shows.")
    mail = serializers.ListField(child=serializers.CharField(), help_text="Types that are mailed.")
    mail_in_digest = serializers.BooleanField(help_text="In the weekly digest instead of at once.")
    digest = serializers.BooleanField(help_text="A digest each Monday.")
    time_zone = serializers.CharField()


class NoticePreferencesPatch(Strict):
    whose = serializers.ChoiceField(choices=Whose.choices, required=False)
    agents = serializers.ListField(child=serializers.UUIDField(), max_length=200, required=False)
    bell = serializers.ListField(child=serializers.CharField(max_length=40), max_length=50, required=False)
    mail = serializers.ListField(child=serializers.CharField(max_length=40), max_length=50, required=False)
    mail_in_digest = serializers.BooleanField(required=False)
    digest = serializers.BooleanField(required=False)
    time_zone = serializers.CharField(max_length=40, required=False, allow_blank=True)


class NoticePreferencesViewSet(ScopedViewSet):
    """The caller's notification settings in their organisation."""

    queryset = Notice.objects.none()
    tag = "notices"
    serializer_class = NoticePreferencesOut
    lookup_field = ""  # one of a person
    versioned = tuple(NoticePreferencesOut._declared_fields)

    def version_row(self, **place: Any) -> QuerySet[Any]:
        return get_user_model()._base_manager.filter(pk=self.actor.user.pk)

    @extend_schema(summary="My notification settings")
    def retrieve(self, request: Request) -> Response:
        return self.answer(self._row())

    @extend_schema(
        summary="Change my notification settings",
        description="What is not given stays.",
        request=NoticePreferencesPatch,
    )
    def partial_update(self, request: Request) -> Response:
        now = self._row()
        kept = {name: getattr(now, name) for name in NoticePreferencesPatch._declared_fields}
        values = kept | parsed(NoticePreferencesPatch, request.data)
        made = preferences_set(self.actor, current_organization(self.actor), **values)
        return self.answer(made)

    def _row(self) -> NoticePreferences:
        return preferences_of(self.actor, current_organization(self.actor).pk)
