"""Model endpoints: where models answer, and whether they do."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import allowed, page, post_page
from agentcore_site.console.row_pages import RowPages
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.llm.profiles import profiles, profiles_of
from experiences.agents.endpoint_config import OPTIONS
from experiences.agents.forms import EndpointForm
from experiences.agents.presenters import EndpointOut
from experiences.agents.selectors import endpoint_get, endpoints_visible, model_server_of
from experiences.agents.services.endpoints import endpoint_archive, endpoint_create, endpoint_test, endpoint_update
from experiences.agents.services.model_servers import model_server_switch
from experiences.models import EndpointServer, ModelEndpoint


class EndpointPages(RowPages):
    one = ("endpoint", "endpoint")
    right = "endpoint.edit"
    form = EndpointForm
    templates = ("agents/endpoints.html", "agents/endpoint_form.html")
    addresses = ("experiences:endpoints", "experiences:endpoint_edit")
    notices = (
        "{} was created. Test it, then select it in an agent's form.",
        "Saved.",
        "{} is archived, and its keys are deleted.",
    )
    reads = (endpoints_visible, endpoint_get)
    writes = (endpoint_create, endpoint_update, endpoint_archive)
    columns = EndpointOut

    def context(self, actor: Actor, form: Any, row: Any) -> dict[str, Any]:
        if row is None:
            return {"help": OPTIONS}
        users = list(row.agents.filter(archived_at=None))
        fitting = profiles_of(row.base_url, row.model, row.kind)
        return {
            "help": OPTIONS,
            "users": users,
            "may": allowed(actor, row.organization_id),
            "profiles": fitting,
            "dated": profiles()[0],
            "server": model_server_of(actor, row),
        }


pages = EndpointPages()


@post_page
def test(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Small calls to the endpoint and model that a form has chosen; ``save`` stores the options that were found."""
    chosen = request.POST.get("endpoint", "").strip()
    endpoint = endpoint_get(actor, chosen) if chosen else None
    model, save = request.POST.get("model", "").strip(), request.POST.get("save") == "yes"
    found = endpoint_test(actor, endpoint=endpoint, model=model, save=save)
    may_save = endpoint is not None and "endpoint.edit" in allowed(actor, endpoint.organization_id)
    context = {"found": found, "endpoint": endpoint, "may_save": may_save, "model": model}
    if found.saved:
        options = EndpointForm.of(endpoint_get(actor, chosen))["options"]
        context["options_field"] = options.as_widget(attrs={"hx-swap-oob": "true"})
    return render(request, "agents/_endpoint_test.html", context)


@page
def server(request: HttpRequest, actor: Actor, endpoint_id: Any) -> HttpResponse:
    """The state of an endpoint's model server: a part of its page, which asks for it again and again."""
    endpoint = endpoint_get(actor, endpoint_id)
    require(actor, "endpoint.edit", endpoint.organization_id)
    return _server(request, endpoint, model_server_of(actor, endpoint))


@post_page
def server_switch(request: HttpRequest, actor: Actor, endpoint_id: Any) -> HttpResponse:
    endpoint = endpoint_get(actor, endpoint_id)
    return _server(request, endpoint, model_server_switch(actor, endpoint, on=request.POST.get("on") == "yes"))


def _server(request: HttpRequest, endpoint: ModelEndpoint, found: EndpointServer | None) -> HttpResponse:
    return render(request, "agents/_model_server.html", {"endpoint": endpoint, "server": found})
