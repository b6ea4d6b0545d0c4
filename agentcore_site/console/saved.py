"""Saved views: the parameters of a list (search, filters, order) under a name that a person chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict
from django.urls import NoReverseMatch, reverse

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.storable import unstorable
from agentcore_site.models import SavedView
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require

MOST: Final = 50  # of a person in an organisation
LONGEST: Final = 2_000  # bytes of the parameters of one view
# Where in the list a person is, and in which form it is wanted: no part of what is shown.
PLACE: Final = ("cursor", "panel", "as", "view")

Asked = Mapping[str, list[str]]


@dataclass(frozen=True)
class Views:
    """The saved views of one list. ``query``: the present parameters; ``current``: the view with exactly these
    parameters."""

    page: str
    rows: list[SavedView]
    query: str
    current: SavedView | None
    own: bool
    may_share: bool

    @property
    def address(self) -> str:
        return reverse(self.page)

    @property
    def everything(self) -> bool:
        return not self.query


def saved_views(actor: Actor, request: HttpRequest) -> Views | None:
    """The views of the list at this address; None if lists are parts of another row's page."""
    match = request.resolver_match
    if match is None or match.kwargs or not actor.memberships:
        return None
    asked = asked_of(request.GET)
    rows = list(views_visible(actor).filter(page=match.view_name).select_related("person"))
    current = next((row for row in rows if row.asked == asked), None)
    query = QueryDict(mutable=True)
    for name, values in asked.items():
        query.setlist(name, values)
    own = current is not None and current.person_id == actor.user.pk
    may_share = actor.may("agent.edit", current_organization(actor).pk)
    return Views(match.view_name, rows, query.urlencode(), current, own, may_share)


def opened(actor: Actor, request: HttpRequest, views: Views) -> SavedView | None:
    """The person's default view of the list, if the address has no parameters at all."""
    if request.method != "GET" or request.GET:
        return None
    return next((row for row in views.rows if row.opens and row.person_id == actor.user.pk), None)


def view_of(actor: Actor, view_id: UUID) -> SavedView:
    """Raises:
    Missing: there is no such view, or it is another person's own.
    """
    found = views_visible(actor).filter(pk=view_id).first()
    if found is None:
        raise Missing("There is no such saved view.")
    return found


def asked_of(query: QueryDict) -> dict[str, list[str]]:
    """The list's parameters in an address, without empty values and without the cursor."""
    asked = {name: [value for value in values if value] for name, values in query.lists() if name not in PLACE}
    return {name: values for name, values in sorted(asked.items()) if values}


@transaction.atomic
def view_save(
    actor: Actor, *, page: str, name: str, query: str, shared: bool = False, opens: bool = False
) -> SavedView:
    """Saves the parameters of a list under a name.

    Raises:
        Forbidden: a person who may only read shares it.
        Invalid: there is no such list, no such name, or there are too many views.
        Conflict: the person has a view of that name for this list.
    """
    organization = current_organization(actor)
    require(actor, "view", organization)
    if shared:
        require(actor, "agent.edit", organization)
    mine = SavedView.objects.filter(organization=organization, person=actor.user)
    if mine.count() >= MOST:
        raise Invalid(f"You have {MOST} saved views already. Remove one first.")
    view = SavedView(organization=organization, person=actor.user, page=_page(page), asked=_asked(query))
    return _written(actor, view, "view.saved", name=name, shared=shared, opens=opens)


@transaction.atomic
def view_change(actor: Actor, view: SavedView, *, name: str, shared: bool, opens: bool) -> SavedView:
    """Changes the name, the sharing, and whether the list opens with it.

    Raises:
        Forbidden: the view is another person's, or a person who may only read shares it.
        Invalid, Conflict: as ``view_save``.
    """
    require(actor, "view", view.organization_id)
    if view.person_id != actor.user.pk:
        raise Forbidden(f"This view is {view.person.username}'s. Save one of your own.")
    if shared and not view.shared:
        require(actor, "agent.edit", view.organization_id)
    return _written(actor, view, "view.changed", name=name, shared=shared, opens=opens)


@transaction.atomic
def view_remove(actor: Actor, view: SavedView) -> None:
    """Raises:
    Forbidden: the view is another person's; editors of members may remove a shared one too.
    """
    require(actor, "view", view.organization_id)
    if view.person_id != actor.user.pk:
        require(actor, "members.edit", view.organization_id)
    record(actor, "view.removed", view, before=_as_logged(view))
    view.delete()


def views_visible(actor: Actor) -> QuerySet[Any]:
    """The person's own views, and those that others of the organisation share."""
    return SavedView.objects.visible_to(actor).filter(Q(person=actor.user) | Q(shared=True))


def _written(actor: Actor, view: SavedView, action: str, *, name: str, shared: bool, opens: bool) -> SavedView:
    name = " ".join(name.split())
    if not 0 < len(name) <= 60:
        raise Invalid("A view has a name of at most 60 characters.", fields={"name": "1 to 60 characters."})
    mine = SavedView.objects.filter(organization=view.organization_id, person=view.person_id, page=view.page)
    if mine.filter(name=name).exclude(pk=view.pk).exists():
        raise Conflict(f"You have a view called {name} for this list already. Take another name.")
    if opens:
        mine.filter(opens=True).exclude(pk=view.pk).update(opens=False)
    before = _as_logged(view) if action == "view.changed" else None
    view.name, view.shared, view.opens = name, shared, opens
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError:  # another window of the same person was first
        raise Conflict("This view was saved at the same moment. Look at the list again.") from None
    record(actor, action, view, before=before, after=_as_logged(view))
    return view


def _as_logged(view: SavedView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in ("page", "name", "asked", "shared", "opens")}


def _page(name: str) -> str:
    try:
        reverse(name)
    except NoReverseMatch:
        raise Invalid("There is no such list.") from None
    if len(name) > 60:
        raise Invalid("There is no such list.")
    return name


def _asked(query: str) -> dict[str, list[str]]:
    try:
        asked = asked_of(QueryDict(query))
    except ValueError:  # more parameters than Django takes
        raise Invalid("This view asks for too much to be saved.") from None
    if reason := unstorable([[name, *values] for name, values in asked.items()]):
        raise Invalid(f"The view can't be saved: {reason}.")
    if len(orjson.dumps(asked)) > LONGEST:
        raise Invalid("This view asks for too much to be saved.")
    return asked
