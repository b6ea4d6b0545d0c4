"""Model endpoints: where models answer, and whether they do."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, asked, listing, matching, page, post_page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.endpoint_config import OPTIONS
from experiences.agents.forms import EndpointForm
from experiences.agents.selectors import endpoint_get, endpoints_visible
from experiences.agents.services.endpoints import (
    endpoint_archive,
    endpoint_create,
    endpoint_test,
    endpoint_update,
)
from experiences.models import ModelEndpoint

SORTS = (Sort("name", "name", "name", descending=False), Sort("newest", "newest first", "created_at"))
COLUMNS = {
    "id": "id",
    "name": "name",
    "kind": "kind",
    "base_url": "base_url",
    "model": "model",
    "created_at": "created_at",
}


@page
def endpoints(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = endpoints_visible(actor)
    rows = matching(everything, *asked(request, "q"), "name").prefetch_related("agents")
    found = listing(request, rows, SORTS, one="endpoint", of=everything, columns=COLUMNS)
    return render(request, "agents/endpoints.html", {"listing": found, "rows": found.rows})


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "endpoint.edit", current_organization(actor))
    form = EndpointForm(sent(request))
    if made := form.applied(endpoint_create, actor):
        messages.success(request, f"{made.name} was created. Test it, then select it in an agent's form.")
        return redirect("experiences:endpoint_edit", endpoint_id=made.pk)
    return _form(request, form, None, actor)


@page
def edit(request: HttpRequest, actor: Actor, endpoint_id: Any) -> HttpResponse:
    endpoint = endpoint_get(actor, endpoint_id)
    require(actor, "endpoint.edit", endpoint.organization_id)
    form = EndpointForm.of(endpoint, sent(request))
    if form.applied(endpoint_update, actor, endpoint):
        messages.success(request, "Saved.")
        return redirect("experiences:endpoint_edit", endpoint_id=endpoint.pk)
    return _form(request, form, endpoint_get(actor, endpoint_id), actor)


@post_page
def archive(request: HttpRequest, actor: Actor, endpoint_id: Any) -> HttpResponse:
    endpoint = endpoint_archive(actor, endpoint_get(actor, endpoint_id))
    messages.success(request, f"{endpoint.name} is archived, and its keys are deleted.")
    return redirect("experiences:endpoints")


@post_page
def test(request: HttpRequest, actor: Actor) -> HttpResponse:
    """One small call to the endpoint and model that a form has chosen."""
    chosen = request.POST.get("endpoint", "").strip()
    endpoint = endpoint_get(actor, chosen) if chosen else None
    found = endpoint_test(actor, endpoint=endpoint, model=request.POST.get("model", "").strip())
    return render(request, "agents/_endpoint_test.html", {"found": found})


def _form(request: HttpRequest, form: EndpointForm, endpoint: ModelEndpoint | None, actor: Actor) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "endpoint": endpoint, "help": OPTIONS}
    if endpoint is not None:
        context["users"] = list(endpoint.agents.filter(archived_at=None))
        context["may"] = allowed(actor, endpoint.organization_id)
    return render(request, "agents/endpoint_form.html", context, status=form.status)
