"""One item of a playbook: where it comes from, its history, and what people do with it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import allowed, page, post_page, whole_number
from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Experience, Playbook
from experiences.models.agent_lookup import agent_get
from experiences.playbooks.forms import ItemForm
from experiences.playbooks.presenters.items import NOT_YET, ItemRow, item_history, items_of
from experiences.playbooks.presenters.reviews import evidence
from experiences.playbooks.selectors import changes_of, playbook_get
from experiences.playbooks.services.playbooks import playbook_edit, section_revert
from experiences.playbooks.views.playbooks import shown


@page
def item(request: HttpRequest, actor: Actor, agent_id: Any, handle: str) -> HttpResponse:
    return _item(request, actor, playbook_get(actor, agent_id), handle)


@post_page
def add(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """A person's own item; what was typed stays in the form when it is refused."""
    playbook = playbook_get(actor, agent_id)
    require(actor, "playbook.edit", playbook.organization_id)
    form = ItemForm(request.POST)
    if made := form.applied(playbook_edit, actor, playbook, type="add"):
        message = f"The item {made.section} is added." if not made.reason else f"Not added twice: {made.reason}."
        messages.success(request, f"{message} {NOT_YET}")
        return redirect("experiences:playbook", agent_id=agent_id)
    return shown(request, actor, agent_get(actor, agent_id), form)


@post_page
def edit(request: HttpRequest, actor: Actor, agent_id: Any, handle: str) -> HttpResponse:
    playbook = playbook_get(actor, agent_id)
    require(actor, "playbook.edit", playbook.organization_id)
    form = ItemForm(request.POST)
    if form.applied(playbook_edit, actor, playbook, type="update", target=handle):
        messages.success(request, f"Saved as version {playbook.version}. {NOT_YET}")
        return redirect("experiences:playbook_item", agent_id=agent_id, handle=handle)
    return _item(request, actor, playbook_get(actor, agent_id), handle, form)


@post_page
def remove(request: HttpRequest, actor: Actor, agent_id: Any, handle: str) -> HttpResponse:
    playbook = playbook_get(actor, agent_id)
    why = request.POST.get("why", "")[:2000]
    playbook_edit(
        actor, playbook, type="remove", target=handle, rationale=why, expected=whole_number(request.POST, "version")
    )
    messages.success(request, f"Removed in version {playbook.version}. Its history is kept, and you can restore it.")
    return redirect("experiences:playbook_item", agent_id=agent_id, handle=handle)


@post_page
def revert(request: HttpRequest, actor: Actor, agent_id: Any, handle: str) -> HttpResponse:
    playbook = playbook_get(actor, agent_id)
    require(actor, "playbook.edit", playbook.organization_id)
    version = whole_number(request.POST, "as_in")
    if version is None:
        raise Invalid("Say which version the item is to be as in.", fields={"as_in": "A number."})
    section_revert(actor, playbook, section=handle, version=version, expected=whole_number(request.POST, "version"))
    messages.success(request, f"{handle} is as it was in version {version}.")
    return redirect("experiences:playbook_item", agent_id=agent_id, handle=handle)


def _item(
    request: HttpRequest, actor: Actor, playbook: Playbook, handle: str, form: ItemForm | None = None
) -> HttpResponse:
    history = list(changes_of(playbook, handle).select_related("job"))
    if not history:
        raise Missing(f"There is no item {handle[:20]!r} in this playbook, and there never was.")
    found = next((item for item in items_of(playbook) if item.section.id == handle), None)
    may = allowed(actor, playbook.organization_id)
    context = {
        "agent": playbook.agent,
        "playbook": playbook,
        "handle": handle,
        "item": found,
        "history": item_history(history),
        "may": may,
        "form": _form(form, found, playbook) if "playbook.edit" in may else None,
        **_taught(actor, found),
    }
    return render(request, "playbooks/playbook_item.html", context, status=form.code if form else 200)


def _form(form: ItemForm | None, found: ItemRow | None, playbook: Playbook) -> ItemForm | None:
    return form or (ItemForm.of(found.section, playbook.version) if found else None)


def _taught(actor: Actor, found: ItemRow | None) -> dict[str, Any]:
    """Sources of the present text: executions, or the lesson that it was."""
    if found is None:
        return {}
    delta, latest = found.blame.delta, found.blame.latest
    traces, gone = evidence(actor, delta) if delta else ([], 0)
    of_lesson = latest.experience if latest else None
    lesson = Experience.objects.visible_to(actor).filter(id=of_lesson).first() if of_lesson else None
    return {"delta": delta, "traces": traces, "gone": gone, "lesson": lesson}
