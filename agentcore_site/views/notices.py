"""The bell, the list of notices behind it, and a person's notification settings."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, listing, matching, page, post_page, query_params, sent
from agentcore_site.lib.texts import uuid_of
from agentcore_site.notices.catalogue import CHOICES, EVENT_TYPES
from agentcore_site.notices.mentions import names_offered
from agentcore_site.notices.selectors import endpoints_visible, notices_visible, preferences_of, unread_count
from agentcore_site.notices.services import notice_unread, notices_read, preferences_set
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization
from agentcore_site.views.notice_forms import PreferencesForm
from experiences.models.agent_lookup import agents_visible

SORTS = (Sort("newest", "newest first", "created_at"), Sort("oldest", "oldest first", "created_at", descending=False))
FAMILIES = tuple(dict.fromkeys(name.partition(".")[0] for name in EVENT_TYPES))


@page
def notices(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = notices_visible(actor)
    query, show, about = query_params(request, "q", "show", "about")
    rows = matching(everything, query, "event__text", "event__type")
    if show == "unread":
        rows = rows.filter(read_at=None)
    if about in FAMILIES:
        rows = rows.filter(event__type__startswith=f"{about}.")
    context = {
        "listing": listing(request, rows, SORTS, one="notification", of=everything),
        "show": show if show == "unread" else "",
        "shows": ["unread"],
        "about": about if about in FAMILIES else "",
        "abouts": FAMILIES,
        "unread": unread_count(actor),
    }
    return render(request, "notices/notices.html", context)


@page
def bell(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The bell alone, with how much is unread now."""
    return render(request, "notices/_bell.html", {"unread": unread_count(actor)})


@page
def names(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Names of members for an ``@`` in a comment, as JSON."""
    [typed] = query_params(request, "q")
    return JsonResponse({"names": names_offered(actor, typed)})


@post_page
def read(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Marks one as read, or not read, or all as read."""
    one = uuid_of(request.POST.get("notice", ""))
    if one is None:
        count = notices_read(actor)
        messages.success(request, f"{count} marked as read.")
    elif request.POST.get("unread"):
        notice_unread(actor, one)
    else:
        notices_read(actor, [one])
    return redirect("notices")


@page
def settings(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    row = preferences_of(actor, organization.pk)
    agents = list(agents_visible(actor).filter(organization=organization).order_by("name").values_list("pk", "name"))
    form = PreferencesForm.of(row, sent(request), agents=agents)
    if form.applied(preferences_set, actor, organization):
        messages.success(request, "Saved.")
        return redirect("notice_settings")
    own = endpoints_visible(actor).filter(user=actor.user, organization=organization)
    context = {"form": form, "rows": _rows(form), "endpoints": own.order_by("name")}
    return render(request, "notices/settings.html", context, status=form.status)


def _rows(form: PreferencesForm) -> list[dict[str, Any]]:
    """A line for each type, with what is ticked."""
    ticked = {name: set(form[name].value() or ()) for name in ("bell", "mail")}
    return [
        {"name": name, "title": title, "bell": name in ticked["bell"], "mail": name in ticked["mail"]}
        for name, title in CHOICES
    ]
