"""The playground over rows of a dataset: a table of rows by candidates, whose cells are asked for one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from agentcore_site.console.pages import allowed, page, post_page, query_params, sent
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.presenters.topbar import budget_pill
from budgets.selectors import playground_room
from evaluation.serving.playground.candidates import candidates_offered
from evaluation.serving.playground.forms import CellForm, RowsForm, RowTermsForm
from evaluation.serving.playground.rows import AskedCell, RowsRun, cell_begin, cell_pieces, rows_begin
from evaluation.serving.playground.services import run_token
from evaluation.serving.playground.views import candidates_linked, given
from experiences.agents.selectors import datasets_visible
from experiences.models.agent_lookup import OFFERED


@page
def rows(request: HttpRequest, actor: Actor) -> HttpResponse:
    home = current_organization(actor)
    require(actor, "gateway.call", home)
    require(actor, "data.view", home)
    offered = candidates_offered(actor)
    [dataset] = query_params(request, "dataset")
    datasets = _datasets(actor, request.POST.get("dataset") or dataset)
    initial = candidates_linked(request) | {"dataset": dataset}
    form = RowsForm(sent(request), offered=offered, datasets=datasets, initial=initial)
    run = form.applied(rows_begin, actor)
    context = {
        "form": form,
        "offered": offered,
        "datasets": datasets,
        "run": run,
        "table": _table(request, form, run) if run is not None else {},
        "token": run_token(actor),  # of the next run: this one's cells are asked for once
        "room": playground_room(home.pk),
        "budget": budget_pill(home.pk),
        "may": allowed(actor, home.pk),
    }
    return render(request, "serving/playground_rows.html", context, status=form.status)


@post_page
def cell(request: HttpRequest, actor: Actor) -> HttpResponseBase:
    """The answer of one candidate to one row, as it comes, with its verdict."""
    home = current_organization(actor)
    require(actor, "gateway.call", home)
    require(actor, "data.view", home)
    form = CellForm(request.POST)
    given(form)
    try:
        asked = cell_begin(actor, **form.values())
    except DomainError as error:
        return render(request, "serving/_playground_cell.html", {"problem": error.message}, status=error.code)
    response = StreamingHttpResponse(_lines(asked), content_type="application/x-ndjson")
    response["X-Accel-Buffering"] = "no"
    return response


async def _lines(asked: AskedCell) -> AsyncIterator[bytes]:
    """Lines of JSON: texts as they come, then the cell and the candidate's total, as parts of the page."""
    async for piece in cell_pieces(asked):
        if isinstance(piece, str):
            yield orjson.dumps({"text": piece}) + b"\n"
            continue
        context = {"problem": piece.found.error, "answer": piece, "found": piece.found, "trace": asked.trial.id}
        line: dict[str, Any] = {"html": render_to_string("serving/_playground_cell.html", context)}
        if piece.total is not None:
            total = {"total": piece.total, "n": len(asked.others)}
            line |= {"total": render_to_string("serving/_playground_total.html", total), "ended": piece.total.asked}
        yield orjson.dumps(line) + b"\n"


def _datasets(actor: Actor, chosen: str) -> list[tuple[str, str]]:
    """The newest versions by name, and the one that is chosen."""
    rows = datasets_visible(actor).filter(archived_at=None)
    known = list(rows.filter(followed_by=None).order_by("name", "id")[:OFFERED])
    chosen_id = uuid_of(chosen)
    if chosen_id is not None and chosen_id not in {one.pk for one in known}:
        known += rows.filter(pk=chosen_id)
    return [(str(one.pk), f"{one.name}, version {one.version}: {one.size:,} rows") for one in known]


def _table(request: HttpRequest, form: RowsForm, run: RowsRun) -> dict[str, Any]:
    """The columns, and the fields that all cells send."""
    chosen = zip(run.labels, form.values()["candidates"], strict=True)
    columns = [
        {"place": place, "label": label, "candidate": one.value, "prompt": one.prompt}
        for place, (label, one) in enumerate(chosen)
    ]
    fields = {name: request.POST.get(name, "") for name in RowTermsForm.base_fields} | {"n": len(run.rows)}
    return {"columns": columns, "fields": fields}
