"""Prompt packs: the stamped frames of agents' prompts."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, asked, listing, matching, page, post_page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.lessons.forms import PackForm
from experiences.lessons.selectors import agents_by_domain, pack_get, packs_visible
from experiences.lessons.services.packs import pack_archive, pack_create, pack_update
from experiences.lessons.stamps import pack_fault
from experiences.models import PromptPack

SORTS = (Sort("name", "name", "name", descending=False), Sort("newest", "newest first", "created_at"))
COLUMNS = {
    "id": "id",
    "name": "name",
    "domain": "domain",
    "stamp": "stamp",
    "created_at": "created_at",
}


@page
def prompt_packs(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = packs_visible(actor)
    rows = matching(everything, *asked(request, "q"), "name", "domain").prefetch_related("agents")
    found = listing(request, rows, SORTS, one="prompt pack", of=everything, columns=COLUMNS)
    shown = [{"pack": pack, "fault": pack_fault(pack)} for pack in found.rows]
    return render(request, "lessons/prompt_packs.html", {"listing": found, "rows": shown})


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "agent.edit", current_organization(actor))
    form = PackForm(sent(request))
    if made := form.applied(pack_create, actor):
        messages.success(request, f"{made.name} was created and stamped. Select it in an agent's form.")
        return redirect("experiences:prompt_pack", pack_id=made.pk)
    return _form(request, actor, form, None)


@page
def edit(request: HttpRequest, actor: Actor, pack_id: Any) -> HttpResponse:
    """All members of the organisation may read it; those who edit agents may change it."""
    pack = pack_get(actor, pack_id)
    if request.method == "POST":
        require(actor, "agent.edit", pack.organization_id)
    form = PackForm.of(pack, sent(request))
    if form.applied(pack_update, actor, pack):
        messages.success(
            request, "Saved and stamped. Jobs that act by it and have not ended go on with it as it is now."
        )
        return redirect("experiences:prompt_pack", pack_id=pack.pk)
    return _form(request, actor, form, pack_get(actor, pack_id))


@post_page
def archive(request: HttpRequest, actor: Actor, pack_id: Any) -> HttpResponse:
    pack = pack_archive(actor, pack_get(actor, pack_id))
    messages.success(request, f"{pack.name} is archived.")
    return redirect("experiences:prompt_packs")


def _form(request: HttpRequest, actor: Actor, form: PackForm, pack: PromptPack | None) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "pack": pack}
    if pack is not None:
        context["fault"] = pack_fault(pack)
        context["users"] = list(pack.agents.filter(archived_at=None))
        context["choosers"] = list(agents_by_domain(pack))
        context["may"] = allowed(actor, pack.organization_id)
    return render(request, "lessons/prompt_pack.html", context, status=form.status)
