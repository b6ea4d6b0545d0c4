"""REST: the audit log as a list, and as an export."""

from __future__ import annotations

from typing import Any
from uuid import UUID

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
from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.filters import WORDS
from agentcore_site.rest.views import ScopedViewSet

SITE = OpenApiParameter(
    "site", bool, default=False, description="The whole site's log. For superusers with a token of their own, no key."
)


class AuditEventOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    organization_id = serializers.UUIDField()
    user_id = serializers.IntegerField(allow_null=True)
    actor = serializers.CharField()
    door = serializers.CharField(help_text="By which interface.")
    ip = serializers.CharField()
    request_id = serializers.CharField()
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    target = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class AuditEventViewSet(ScopedViewSet):
    queryset = AuditEvent.objects.none()
    filterset_class = AuditEventFilters
    orderings = {"-at": "at"}
    lookup_value_converter = "uuid"
    known_query = {"export": ("site", *AuditEventFilters.base_filters)}

    @extend_schema(summary="The audit log", tags=["audit"], responses=AuditEventOut(many=True))
    def list(self, request: Request) -> Response:
        return self.page(audit_visible(self.actor), AuditEventOut)

    @extend_schema(summary="One event of the audit log", tags=["audit"], responses=AuditEventOut)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return Response(AuditEventOut(audit_get(self.actor, pk)).data)

    @extend_schema(
        summary="Export the audit log",
        description=(
            "Each line with its digest, and with its seal where it is sealed already; `manage.py audit_verify --copy` "
            "checks such a copy. Streamed without a limit, in the order of `number`. Each export is itself in the log."
        ),
        tags=["audit"],
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
