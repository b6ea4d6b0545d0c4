"""REST: the audit log as a list, as an export, and the webhook that receives it."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit_export.exports import FILE, MEDIA, audit_export_start, audit_get, audit_jsonl, audit_visible
from agentcore_site.audit_export.filters import AuditEventFilters
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.audit_export.presenters import AuditEventOut
from agentcore_site.audit_export.sending import lines_waiting, stream_secret
from agentcore_site.audit_export.services import (
    stream_get,
    stream_pause,
    stream_remove,
    stream_renew_secret,
    stream_restart,
    stream_set,
    stream_test,
)
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.rest.filters import WORDS
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import current_organization, require

SITE = OpenApiParameter(
    "site", bool, default=False, description="The whole site's log. For superusers with a token of their own, no key."
)


class AuditEventViewSet(ReadViewSet):
    queryset = AuditEvent.objects.none()
    tag = "audit"
    serializer_class = AuditEventOut
    filterset_class = AuditEventFilters
    orderings = {"-at": "at"}
    lookup_value_converter = "uuid"
    known_query = {"export": ("site", *AuditEventFilters.base_filters)}
    lists = ("The audit log", audit_visible)
    reads = ("One event of the audit log", audit_get)

    @extend_schema(
        summary="Export the audit log",
        description=(
            "Each line with its digest, and with its seal where it is sealed already; `manage.py audit_verify --copy` "
            "checks such a copy. Streamed without a limit, in the order of `number`. Each export is itself in the log."
        ),
        parameters=[SITE],
        filters=True,
        responses={(200, MEDIA): OpenApiResponse(OpenApiTypes.STR, "One event a line.")},
    )
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> StreamingHttpResponse:
        filters = request.query_params.dict()
        site = str(filters.pop("site", "false")).lower()
        if site not in WORDS:
            raise Invalid("site must be true or false.", fields={"site": "Must be true or false."})
        lines = audit_jsonl(audit_export_start(self.actor, filters, site=bool(WORDS[site])))
        return StreamingHttpResponse(lines, content_type=MEDIA, headers={"Content-Disposition": FILE})


WAITING: Final = 10_000  # lines that are counted, at most


class AuditWebhookOut(Shape):
    url = serializers.CharField()
    paused = serializers.BooleanField()
    sent_lines = serializers.IntegerField(help_text="That were taken so far.")
    sent_at = serializers.DateTimeField(allow_null=True, help_text="When it last took some.")
    waiting_lines = serializers.IntegerField(help_text=f"That were not taken yet; at most {WAITING} are counted.")
    tries = serializers.IntegerField(help_text="Of the batch that is under way.")
    try_after = serializers.DateTimeField()
    error = serializers.CharField(help_text="Why the last try failed; empty where it did not.")
    failing_since = serializers.DateTimeField(allow_null=True)
    secret_version = serializers.IntegerField()
    created_at = serializers.DateTimeField()

    computed = {"waiting_lines": lambda row: lines_waiting(row, WAITING)}


class NewAuditWebhookOut(AuditWebhookOut):
    secret = serializers.CharField(help_text="Signs as Standard Webhooks says. Shown this once.")

    computed = {**AuditWebhookOut.computed, "secret": lambda row: stream_secret(row.pk, row.secret_version)}


class AuditWebhookIn(Strict):
    url = serializers.CharField(max_length=500)
    beginning = serializers.BooleanField(default=True, help_text="From the log's first line on, and not from now on.")


class AuditWebhookPatch(Strict):
    url = serializers.CharField(max_length=500, required=False)
    paused = serializers.BooleanField(required=False, help_text="Nothing is lost while it pauses.")


class AuditRestartIn(Strict):
    beginning = serializers.BooleanField(help_text="Go on with the log's first line; else with what comes from now on.")


class AuditWebhookViewSet(ScopedViewSet):
    """The webhook that receives the organisation's audit log, and its progress."""

    queryset = AuditStream.objects.none()
    tag = "audit"
    serializer_class = AuditWebhookOut
    lookup_field = ""  # one of an organisation
    versioned = ("url", "paused", "secret_version")
    idempotent = ("restart",)
    shown_once = {"create": "secret", "secret": "secret"}

    def version_row(self, **place: Any) -> QuerySet[Any]:
        return AuditStream._base_manager.filter(pk=current_organization(self.actor).pk)

    def _row(self) -> AuditStream:
        return stream_get(self.actor, current_organization(self.actor))

    @extend_schema(summary="The destination of the audit log")
    def retrieve(self, request: Request) -> Response:
        return self.answer(self._row())

    @extend_schema(
        summary="Send the audit log to a webhook", request=AuditWebhookIn, responses={201: NewAuditWebhookOut}
    )
    def create(self, request: Request) -> Response:
        organization, values = current_organization(self.actor), parsed(AuditWebhookIn, request.data)
        require(self.actor, "audit.stream", organization)

        def work() -> Response:
            if AuditStream.objects.filter(organization=organization).exists():
                raise Conflict("The audit log is sent to a webhook already: change its address, or remove it first.")
            return Response(NewAuditWebhookOut(stream_set(self.actor, organization, **values)).data, status=201)

        return self.once(request, work)

    @extend_schema(summary="Change the destination of the audit log, or pause it", request=AuditWebhookPatch)
    def partial_update(self, request: Request) -> Response:
        values, row = parsed(AuditWebhookPatch, request.data), self._row()
        if "url" in values:
            stream_set(self.actor, row.organization, url=values["url"])
        if "paused" in values:
            stream_pause(self.actor, row, paused=values["paused"])
        return self.retrieve(request)

    @extend_schema(summary="Stop sending the audit log")
    def destroy(self, request: Request) -> Response:
        stream_remove(self.actor, self._row())
        return Response(status=204)

    @extend_schema(summary="Send a test to the audit log's webhook")
    def test(self, request: Request) -> Response:
        """A message without lines. 409 where it was not taken; the answer says why."""
        stream_test(self.actor, self._row())
        return self.retrieve(request)

    @extend_schema(summary="Send the audit log again from its beginning, or from now on", request=AuditRestartIn)
    def restart(self, request: Request) -> Response:
        beginning, row = parsed(AuditRestartIn, request.data)["beginning"], self._row()

        def work() -> Response:
            stream_restart(self.actor, row, beginning=beginning)
            return self.retrieve(request)

        return self.once(request, work)

    @extend_schema(
        summary="Make the audit log's webhook another signing secret",
        description="What is sent from now on is signed by it.",
        responses=NewAuditWebhookOut,
    )
    def secret(self, request: Request) -> Response:
        row = self._row()
        return self.once(request, lambda: Response(NewAuditWebhookOut(stream_renew_secret(self.actor, row)).data))
