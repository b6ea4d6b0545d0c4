"""Saved views are made, changed and removed over their list; columns of a list are chosen."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from agentcore_site.console.address import own_address
from agentcore_site.console.columns import LISTS
from agentcore_site.console.cookies import keep_in_browser
from agentcore_site.console.pages import post_page
from agentcore_site.console.saved import view_change, view_of, view_remove, view_save
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor


@post_page
def save(request: HttpRequest, actor: Actor) -> HttpResponse:
    sent = request.POST
    view = view_save(
        actor,
        page=sent.get("page", ""),
        name=sent.get("name", ""),
        query=sent.get("query", ""),
        shared="shared" in sent,
        opens="opens" in sent,
    )
    messages.success(request, f"{view.name} was saved.")
    return redirect(view.address)


@post_page
def change(request: HttpRequest, actor: Actor, view_id: UUID) -> HttpResponse:
    sent, view = request.POST, view_of(actor, view_id)
    view_change(actor, view, name=sent.get("name", ""), shared="shared" in sent, opens="opens" in sent)
    messages.success(request, f"{view.name} was changed.")
    return redirect(view.address)


@post_page
def remove(request: HttpRequest, actor: Actor, view_id: UUID) -> HttpResponse:
    view = view_of(actor, view_id)
    view_remove(actor, view)
    messages.success(request, f"{view.name} was removed.")
    return redirect(f"{reverse(view.page)}?view=all")


@post_page
def columns(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Stores in this browser the columns that a list shows."""
    of = LISTS.get(request.POST.get("list", ""))
    if of is None:
        raise Invalid("This list has no columns to choose.")
    if not (shown := set(request.POST.getlist("column")) & of.names.keys()):
        raise Invalid("Choose one column at least.")
    back = redirect(own_address(request, request.POST.get("next", ""), reverse(of.page)))
    return keep_in_browser(request, back, of.cookie, of.as_cookie(shown))
