"""Read-only links to jobs, for those who share them: who made each, until when, when it was last used, and an end."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from agentcore_site.console.pages import Sort, listing, matching, page, post_page, query_params
from agentcore_site.jobs.selectors import link_get, links_visible
from agentcore_site.jobs.services import share_revoke
from agentcore_site.tenancy.actors import Actor

SORTS = (Sort("newest", "newest first", "created_at"), Sort("ends", "ends first", "expires_at", descending=False))


@page
def share_links(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = links_visible(actor, ended=True)
    query, show = query_params(request, "q", "show")
    rows = everything if show == "ended too" else links_visible(actor)
    found = listing(
        request, matching(rows, query, "job__title", "created_by__username"), SORTS, one="link", of=everything
    )
    shown = {"show": show if show == "ended too" else "", "shows": ["ended too"], "now": timezone.now()}
    return render(request, "agentcore_site/share_links.html", {"listing": found, **shown})


@post_page
def revoke(request: HttpRequest, actor: Actor, share_link_id: UUID) -> HttpResponse:
    link = link_get(actor, share_link_id)
    share_revoke(actor, link.job, link.pk)
    messages.success(request, f"The link to “{link.job}” was revoked.")
    return redirect("share_links")
