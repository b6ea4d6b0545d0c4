"""Admin of jobs, their events and their read-only links."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from agentcore_site.identity.administration import LongTableAdmin, ReadOnlyAdmin, list_page, service_action
from agentcore_site.jobs.models import Job, JobEvent, ShareLink
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume, share_revoke
from agentcore_site.lib.texts import uuid_of


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = [
        "__str__",
        "kind",
        "status",
        "status_reason",
        "percent",
        "priority",
        "created_by",
        "created_at",
        "worker",
    ]
    list_filter = ["status", "kind", "status_reason", "priority", "organization"]
    search_fields = ["id__exact", "title", "created_by__username"]
    actions = ["pause", "resume", "cancel"]
    show_full_result_count = False

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Job], search_term: str) -> Any:
        # An id is looked up as one; other text is no UUID, and must not reach that column.
        if wanted := uuid_of(search_term.strip()):
            return queryset.filter(id=wanted), False
        matches = Q(title__icontains=search_term) | Q(created_by__username__icontains=search_term)
        return queryset.filter(matches) if search_term else queryset, False

    @admin.display(description="progress")
    def percent(self, job: Job) -> str:
        return f"{100 * job.progress:.0f} %"

    pause = service_action("Pause the selected jobs", "Asked to pause", job_pause)
    resume = service_action("Resume the selected jobs", "Resumed", job_resume)
    cancel = service_action("Cancel the selected jobs", "Asked to cancel", job_cancel)


list_page(JobEvent, "job seq at type level message", LongTableAdmin, list_filter=["level", "type"], ordering=["-id"])


@admin.register(ShareLink)
class ShareLinkAdmin(ReadOnlyAdmin):
    list_display = ["job", "created_by", "created_at", "expires_at", "last_seen_at", "revoked_at"]
    exclude = ["digest"]
    actions = ["revoke"]

    revoke = service_action(
        "Revoke the selected links", "Revoked", lambda actor, link: share_revoke(actor, link.job, link.id)
    )
