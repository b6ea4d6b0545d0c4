"""Archives: what was archived when, what ages how, how fast the database grows."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, listing, matching, page, post_page, query_params
from agentcore_site.jobs.lifecycle import cancel as job_cancel
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.retention import rules
from agentcore_site.storage import storage_usage
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import ArchiveState
from experiences.models.agent_lookup import agents_visible
from experiences.trajectories.archive.forms import ArchiveRuleForm
from experiences.trajectories.archive.selectors import archive_get, archive_rules_visible, archives_visible
from experiences.trajectories.archive.services import archive_rule_set, job_active, restore_ask, retention_start

SORTS = (
    Sort("newest", "newest month first", "month"),
    Sort("oldest", "oldest month first", "month", descending=False),
    Sort("largest", "largest first", "size"),
    Sort("rows", "most trajectories", "rows"),
)
TABLES = 12


@page
def archives(request: HttpRequest, actor: Actor, job_id: Any = None) -> HttpResponse:
    """Also as the page of a job that archives."""
    require(actor, "retention.run", current_organization(actor))
    if job_id is not None:
        job_get(actor, job_id)
    return _page(request, actor, ArchiveRuleForm(agents=agents_visible(actor)))


def _page(request: HttpRequest, actor: Actor, form: ArchiveRuleForm) -> HttpResponse:
    organization = current_organization(actor)
    everything = archives_visible(actor)
    query, state = query_params(request, "q", "state")
    rows = matching(everything, query, "agent__name", "agent__slug", "month")
    rows = rows.filter(state=state) if state in ArchiveState.values else rows
    usage = storage_usage() if actor.runs_site else None  # of all organisations
    context = {
        "listing": listing(request, rows, SORTS, one="archive", of=everything),
        "state": state,
        "states": ArchiveState.choices,
        "usage": usage,
        "tables": usage.tables[:TABLES] if usage else (),
        "rules": [(name, rule, rule.setting and getattr(settings, rule.setting)) for name, rule in rules.items()],
        "hot_days": settings.TRAJECTORY_HOT_DAYS,
        "kept_days": settings.TRAJECTORY_ARCHIVE_DAYS,
        "archive_rules": archive_rules_visible(actor),
        "job": job_active(organization.pk),
        "organization": organization,
        "form": form,
        "may": allowed(actor, organization.pk),
    }
    return render(request, "trajectories/archives.html", context)


@post_page
def rule(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    require(actor, "retention.edit", organization_id)
    form = ArchiveRuleForm(request.POST, agents=agents_visible(actor))
    if not form.is_valid():
        return _page(request, actor, form)
    archive_rule_set(actor, organization_id, form.cleaned_data["agent"], form.cleaned_data["keep_days"])
    messages.success(request, "Saved.")
    return redirect("experiences:archives")


@post_page
def start(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    require(actor, "retention.run", organization_id)
    retention_start(actor, Organization.objects.get(pk=organization_id))
    messages.success(request, "Archiving has begun.")
    return redirect("experiences:archives")


@post_page
def cancel(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    require(actor, "retention.run", organization_id)
    if (job := job_active(organization_id)) is None:
        raise Conflict("Nothing is being archived.")
    job_cancel(actor, job)
    messages.success(request, "Archiving ends with the file that it is at. What is due is archived the next time.")
    return redirect("experiences:archives")


@post_page
def restore(request: HttpRequest, actor: Actor, archive_id: Any) -> HttpResponse:
    archive = archive_get(actor, archive_id)
    restore_ask(actor, archive)
    messages.success(request, f"{archive.rows:,} trajectories of {archive} are being brought back.")
    return redirect("experiences:archives")
