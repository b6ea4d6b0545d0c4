"""Console: annotated trajectories become a dataset."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import page, sent
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.selectors import dataset_get, datasets_visible
from experiences.trajectories.filters import TrajectoryFilters
from training.data.annotated import dataset_from_annotated, picked
from training.data.forms import AnnotatedForm

ROWS_SHOWN: Final = 20
NAMES: Final = {"q": "search"}  # how the list of trajectories calls a filter otherwise


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The filters of the address choose the trajectories; the form says where they go."""
    organization = current_organization(actor)
    require(actor, "dataset.edit", organization)
    filters = _filters(request.GET)
    offered = datasets_visible(actor).filter(organization=organization, archived_at=None, followed_by=None)
    form = AnnotatedForm(sent(request), datasets=offered, one=bool(filters.get("trajectory")))
    if made := form.applied(_made, actor, filters=filters):
        messages.success(request, f"{made.name}, version {made.version}, has {made.size:,} queries.")
        return redirect("training:dataset", dataset_id=made.pk)
    try:
        found, error = picked(actor, filters), ""
    except Invalid as refused:
        found, error = None, refused.message
    context = {
        "form": form,
        "found": found,
        "error": error,
        "rows": found.rows[:ROWS_SHOWN] if found else [],
        "filters": filters,
        "back": _back(filters),
    }
    return render(request, "training/annotated_new.html", context, status=400 if error else form.status)


def _made(actor: Actor, *, filters: dict[str, str], dataset: str = "", name: str = "", answer: str = "") -> Any:
    follows = dataset_get(actor, dataset) if dataset else None
    return dataset_from_annotated(actor, filters, answer=answer, name=name, follows=follows)


def _filters(given: QueryDict) -> dict[str, str]:
    named = {NAMES.get(name, name): value for name, value in given.items()}
    known = {"trajectory", *TrajectoryFilters.base_filters}
    return {name: str(value) for name, value in named.items() if name in known and value}


def _back(filters: dict[str, str]) -> str:
    if one := filters.get("trajectory"):
        return reverse("experiences:trajectory", args=[one])
    return f"{reverse('experiences:trajectories')}?annotated=true"
