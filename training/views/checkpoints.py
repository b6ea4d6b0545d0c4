"""Checkpoints: the list, tags, the bytes, two side by side."""

from __future__ import annotations

from typing import Any

from django.db.models import FloatField, Value
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme

from agentcore_site.console.pages import Sort, allowed, asked, listing, page, post_page
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.models.agent_lookup import agent_get
from training.presenters.comparisons import checkpoint_comparison
from training.selectors.runs import checkpoints_visible
from training.services.checkpoints import checkpoint_download, checkpoint_of, checkpoint_tag

SORTS = (
    Sort("newest", "newest first", "created_at"),
    Sort("best", "best score", "score"),
    Sort("iteration", "iteration", "iteration"),
)


@page
def checkpoints(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = checkpoints_visible(actor)
    rows = everything
    agent = agent_get(actor, request.GET["agent"]) if request.GET.get("agent") else None
    [tag] = asked(request, "tag")
    if agent is not None:
        rows = rows.filter(agent=agent)
    if tag:
        rows = rows.filter(tags__contains=[tag])
    rows = rows.annotate(score=Coalesce(Cast("validation_low", FloatField()), Value(-1.0)))
    found = listing(request, rows, SORTS, one="checkpoint", of=everything)
    context = {
        "listing": found,
        "checkpoints": found.rows,
        "agent": agent,
        "tag": tag,
        "show_agent": agent is None,
    }
    return render(request, "training/checkpoints.html", context)


@page
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Two checkpoints side by side: figures, and the settings in which their runs differ."""
    chosen = request.GET.getlist("pick") or [request.GET.get("a", ""), request.GET.get("b", "")]
    if len(chosen) != 2 or not all(chosen):
        raise Invalid("Pick two checkpoints to compare.")
    a, b = (checkpoint_of(actor, one) for one in chosen)
    return render(request, "training/compare.html", {"a": a, "b": b, "pair": (a, b)} | checkpoint_comparison(a, b))


@post_page
def tags(request: HttpRequest, actor: Actor, checkpoint_id: Any) -> HttpResponse:
    checkpoint = checkpoint_of(actor, checkpoint_id)
    checkpoint_tag(actor, checkpoint, request.POST.get("tags", "").split(","))
    if request.headers.get("HX-Request") == "true":
        context = {"checkpoint": checkpoint, "may": allowed(actor, checkpoint.organization_id)}
        return render(request, "training/_tags.html", context)
    back = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return redirect(back if safe else "training:checkpoints")


@page
def download(request: HttpRequest, actor: Actor, checkpoint_id: Any) -> HttpResponse:
    checkpoint = checkpoint_of(actor, checkpoint_id)
    response = HttpResponse(checkpoint_download(actor, checkpoint), content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{checkpoint.label}.bin"'
    response["X-Checkpoint-Sha256"] = checkpoint.sha256
    return response
