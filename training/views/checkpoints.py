"""Checkpoints: the list, tags, the bytes, two side by side."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import FloatField, Value
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.address import own_address
from agentcore_site.console.pages import Sort, allowed, listing, page, post_page, query_params
from agentcore_site.console.tables import columns
from agentcore_site.lib.errors import Conflict, Invalid, TooLarge
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent
from experiences.models.agent_lookup import agent_get
from training.presenters.comparisons import checkpoint_comparison
from training.presenters.shapes import CheckpointOut
from training.selectors.runs import checkpoints_visible
from training.services.checkpoint_uploads import checkpoint_upload, download_name, read_upload, sha256_in
from training.services.checkpoints import checkpoint_download, checkpoint_of, checkpoint_tag
from training.services.promotion import before_promoted, promoted

SORTS = (
    Sort("newest", "newest first", "created_at"),
    Sort("best", "best score", "score"),
    Sort("iteration", "iteration", "iteration"),
)
COLUMNS = columns("agent=agent.slug", CheckpointOut)


@page
def checkpoints(request: HttpRequest, actor: Actor) -> HttpResponse:
    agent = agent_get(actor, request.GET["agent"]) if request.GET.get("agent") else None
    return _listed(request, actor, agent)


@post_page
def upload(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Keeps a file as a checkpoint, or shows the list with the reason why not."""
    agent = agent_get(actor, agent_id)
    require(actor, "checkpoint.edit", agent.organization_id)
    typed, file = request.POST.get("sha256", ""), request.FILES.get("file")
    try:
        if file is None:
            raise Invalid("Choose a file.", fields={"file": "Choose a file."})
        found = checkpoint_upload(actor, agent, read_upload(file), sha256=typed or sha256_in(str(file.name)))
    except (Invalid, Conflict, TooLarge) as error:
        again = {"problem": error.message, "sha256": typed[:64]}
        return _listed(request, actor, agent, again)
    messages.success(request, f"{found.label} was uploaded.")
    return redirect(f"{reverse('training:checkpoints')}?agent={agent.pk}")


def _listed(
    request: HttpRequest, actor: Actor, agent: Agent | None, again: dict[str, Any] | None = None
) -> HttpResponse:
    everything = checkpoints_visible(actor)
    rows = everything
    [tag] = query_params(request, "tag")
    if agent is not None:
        rows = rows.filter(agent=agent)
    if tag:
        rows = rows.filter(tags__contains=[tag])
    rows = rows.annotate(score=Coalesce(Cast("validation_low", FloatField()), Value(-1.0)))
    found = listing(request, rows, SORTS, one="checkpoint", of=everything, columns=COLUMNS)
    context = {
        "listing": found,
        "checkpoints": found.rows,
        "agent": agent,
        "tag": tag,
        "show_agent": agent is None,
        "promoted": promoted(agent) if agent else None,
        "goes_back_to": before_promoted(agent) if agent else None,
    }
    status = 400 if again else 200
    return render(request, "training/checkpoints.html", context | (again or {}), status=status)


@page
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Two checkpoints side by side: figures, and the settings in which their runs differ."""
    chosen = request.GET.getlist("pick") or [request.GET.get("a", ""), request.GET.get("b", "")]
    if len(chosen) != 2 or not all(chosen):
        raise Invalid("Choose two checkpoints to compare.")
    a, b = (checkpoint_of(actor, one) for one in chosen)
    return render(request, "training/compare.html", {"a": a, "b": b, "pair": (a, b)} | checkpoint_comparison(a, b))


@post_page
def tags(request: HttpRequest, actor: Actor, checkpoint_id: Any) -> HttpResponse:
    checkpoint = checkpoint_of(actor, checkpoint_id)
    checkpoint_tag(actor, checkpoint, request.POST.get("tags", "").split(","))
    if request.headers.get("HX-Request") == "true":
        context = {"checkpoint": checkpoint, "may": allowed(actor, checkpoint.organization_id)}
        return render(request, "training/_tags.html", context)
    return redirect(own_address(request, request.POST.get("next", ""), reverse("training:checkpoints")))


@page
def download(request: HttpRequest, actor: Actor, checkpoint_id: Any) -> HttpResponse:
    checkpoint = checkpoint_of(actor, checkpoint_id)
    response = HttpResponse(checkpoint_download(actor, checkpoint), content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{download_name(checkpoint)}"'
    response["X-Checkpoint-Sha256"] = checkpoint.sha256
    return response
