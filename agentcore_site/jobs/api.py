"""REST: jobs of every kind, their events and read-only links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.events import events_after
from agentcore_site.jobs.models import SHARE_DAYS, Job, Priority, Reason, ShareLink, Status
from agentcore_site.jobs.selectors import job_get, jobs_visible, link_get, links_visible, share_links
from agentcore_site.jobs.services import (
    MOST_DAYS,
    job_cancel,
    job_pause,
    job_resume,
    share_create,
    share_revoke,
    share_revoke_all,
)
from agentcore_site.lib.links import absolute
from agentcore_site.rest.filters import Moment
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet

MAX_EVENTS = 500
BIGGEST = 2**62


class EventsQuery(Strict):
    after = serializers.IntegerField(
        min_value=0, max_value=BIGGEST, default=0, help_text="Events with a higher `seq` than this."
    )
    limit = serializers.IntegerField(min_value=1, max_value=MAX_EVENTS, default=100)


class EventOut(serializers.Serializer[Any]):
    seq = serializers.IntegerField(help_text="Rises without gaps, in the order of commits.")
    at = serializers.DateTimeField()
    type = serializers.CharField()
    level = serializers.CharField()
    message = serializers.CharField()
    data = serializers.DictField()  # type: ignore[assignment]


class EventPage(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = EventOut(many=True)
    last_seq = serializers.IntegerField(help_text="Ask with `after=` this for what comes later.")


class ShareOut(serializers.Serializer[Any]):
    url = serializers.URLField(help_text="Read-only, for people without an account. Shown this once.")


class ShareIn(Strict):
    days = serializers.IntegerField(
        min_value=1, max_value=MOST_DAYS, default=SHARE_DAYS, help_text="How long the link lives."
    )


class ShareLinkOut(serializers.Serializer[Any]):
    """A valid link; its address was shown once, when it was created."""

    id = serializers.UUIDField()
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField(allow_null=True)


class JobOfAnyKindOut(Shape):
    """A job as its queue has it. Its results are under the address of its kind."""

    id = serializers.UUIDField()
    kind = serializers.CharField(help_text="training, evaluation, evolution, suite, export, retention, …")
    title = serializers.CharField()
    status = serializers.ChoiceField(choices=Status.choices)
    status_reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True)
    requested = serializers.CharField(help_text="What was asked of its worker and is not done yet.")
    error = serializers.CharField()
    priority = serializers.ChoiceField(choices=[one.name.lower() for one in Priority], read_only=True)
    progress_percent = serializers.FloatField(source="percent")
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    not_before = serializers.DateTimeField(allow_null=True, help_text="It does not start, or go on, before then.")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)

    computed = {"priority": lambda job: Priority(job.priority).name.lower()}


class JobListFilters(filters.FilterSet):
    kind = filters.CharFilter(help_text="training, evaluation, evolution, suite, export, retention, …")
    status = filters.MultipleChoiceFilter(choices=Status.choices, help_text="Repeatable.")
    search = filters.CharFilter(field_name="title", lookup_expr="icontains", help_text="Text in the title.")
    since = Moment(field_name="created_at", lookup_expr="gte")
    until = Moment(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Job
        fields: list[str] = []


class LivingLinkOut(ShareLinkOut):
    job_id = serializers.UUIDField()


class ShareLinkViewSet(ScopedViewSet):
    """Read-only links to jobs, for members who may share them. They are created at their job."""

    queryset = ShareLink.objects.none()
    tag = "jobs"
    serializer_class = LivingLinkOut
    lookup_value_converter = "uuid"

    @extend_schema(summary="Active links")
    def list(self, request: Request) -> Response:
        return self.page(links_visible(self.actor), LivingLinkOut)

    @extend_schema(summary="Revoke a link")
    def destroy(self, request: Request, pk: UUID) -> Response:
        link = link_get(self.actor, pk)
        share_revoke(self.actor, link.job, link.pk)
        return Response(status=204)


class JobViewSet(ReadViewSet):
    """Jobs of every kind: queued, running, waiting and ended."""

    queryset = Job.objects.none()
    tag = "jobs"
    serializer_class = JobOfAnyKindOut
    filterset_class = JobListFilters
    lookup_value_converter = "uuid"
    known_query = {"events": ("after", "limit")}
    versioned = ("status", "status_reason", "requested")
    shown_once = {"share": "url"}
    lists = ("List jobs of every kind", jobs_visible)
    reads = ("One job of any kind", job_get)

    @action(detail=True, methods=["post"], name="Pause a job of any kind")
    def pause(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_pause)

    @action(detail=True, methods=["post"], name="Resume a paused or failed job of any kind")
    def resume(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_resume)

    @action(detail=True, methods=["post"], name="Cancel a job of any kind")
    def cancel(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_cancel)

    def _moved(self, pk: UUID, move: Callable[[Any, Job], Job]) -> Response:
        move(self.actor, job_get(self.actor, pk))
        return self.answer(job_get(self.actor, pk))

    @extend_schema(summary="A job's events in order", parameters=[EventsQuery], responses=EventPage)
    @action(detail=True, pagination_class=None)
    def events(self, request: Request, pk: UUID) -> Response:
        asked = parsed(EventsQuery, request.query_params.dict())
        job = job_get(self.actor, pk)
        found = events_after(job, asked["after"], asked["limit"])
        last = found[-1]["seq"] if found else asked["after"]
        more = f"{absolute(request, request.path)}?after={last}&limit={asked['limit']}"
        return Response(
            {
                "next": more if len(found) == asked["limit"] else None,
                "previous": None,
                "results": found,
                "last_seq": last,
            }
        )

    @extend_schema(methods=["GET"], summary="The active links of a job", responses=ShareLinkOut(many=True))
    @extend_schema(methods=["POST"], summary="Make a read-only link", request=ShareIn, responses={201: ShareOut})
    @extend_schema(methods=["DELETE"], summary="Revoke every link")
    @action(detail=True, methods=["get", "post", "delete"], pagination_class=None)
    def share(self, request: Request, pk: UUID) -> Response:
        job = job_get(self.actor, pk)
        if request.method == "POST":
            values = parsed(ShareIn, request.data)

            def work() -> Response:
                token = share_create(self.actor, job, **values)
                return Response({"url": absolute(request, f"/shared/{token}/")}, status=201)

            return self.once(request, work)
        if request.method == "DELETE":
            share_revoke_all(self.actor, job)
            return Response(status=204)
        # GET, and HEAD, which is handled by this method too.
        return Response(ShareLinkOut(share_links(self.actor, job), many=True).data)

    @extend_schema(operation_id="jobs_share_link_destroy", summary="Revoke one link")
    @action(detail=True, methods=["delete"], url_path="share/<uuid:link>", pagination_class=None)
    def share_link(self, request: Request, pk: UUID, link: UUID) -> Response:
        share_revoke(self.actor, job_get(self.actor, pk), link)
        return Response(status=204)
