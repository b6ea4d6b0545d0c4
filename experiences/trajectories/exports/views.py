"""Exports: what is asked for, how far it is, and the files that are there."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, listing, matching, page, post_page, query_params
from agentcore_site.console.snippets import ApiCall, snippets
from agentcore_site.jobs.models import ACTIVE, Status
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.links import site_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.trajectories.exports.downloads import file_answer
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.exports.presenters import ExportJobOut, exports_shown, filters_shown
from experiences.trajectories.exports.selection import export_of, export_start
from experiences.trajectories.exports.selectors import export_get, exports_visible
from experiences.trajectories.exports.services import (
    STREAMED_MOST,
    export_cancel,
    export_file,
    export_queue,
    filters_stored,
    format_require,
)
from experiences.trajectories.exports.streams import stream
from experiences.trajectories.filters import TrajectoryFilters

SORTS: Final = (
    Sort("newest", "newest first", "job__created_at"),
    Sort("oldest", "oldest first", "job__created_at", descending=False),
    Sort("largest", "largest first", "size"),
)
NAMES: Final = {"q": "search"}  # how the list of trajectories calls a filter otherwise


@page
def exports(request: HttpRequest, actor: Actor, job_id: Any = None) -> HttpResponse:
    """Also as the page of one export's job."""
    everything = exports_visible(actor)
    if job_id is not None:
        job_get(actor, job_id)
        everything = everything.filter(pk=job_id)
    query, status = query_params(request, "q", "status")
    rows = matching(everything, query, "format", "filters", "job__created_by__username")
    rows = rows.filter(job__status=status) if status in Status.values else rows
    found = listing(request, rows, SORTS, one="export", of=everything, columns=ExportJobOut)
    context = {
        "listing": found,
        "shown": exports_shown(actor, found.rows),
        "status": status,
        "statuses": Status.choices,
        "active": ACTIVE,
    }
    return render(request, "trajectories/exports.html", context)


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Preview of an export, by the filters of the address, and its formats."""
    return _new(request, actor, _filters(request.GET))


def _new(request: HttpRequest, actor: Actor, filters: dict[str, str], *, error: str = "", format: str = "jsonl") -> Any:
    require(actor, "export", current_organization(actor))
    _, found = export_of(actor, filters, format="jsonl")
    rows = found.at_least(STREAMED_MOST + 1)
    context = {
        "filters": filters,
        "said": filters_shown(actor, [filters])[0],
        "query": urlencode(filters),
        "rows": rows,
        "formats": FORMATS.items(),
        "format": format,
        "streamed_most": STREAMED_MOST,
        "streamed": rows <= STREAMED_MOST,
        "more": rows > STREAMED_MOST,
        "error": error,
        "stream_call": snippets(stream_call(filters, format), site_of(request)),
        "queue_call": snippets(queue_call(filters, format), site_of(request)),
    }
    return render(request, "trajectories/export_new.html", context, status=400 if error else 200)


def stream_call(filters: dict[str, str], format: str) -> ApiCall:
    """The export at once, as a request."""
    name = FORMATS[format].name if format in FORMATS else "export"
    path = f"/api/v1/trajectories/export?{urlencode({'format': format} | filters)}"
    return ApiCall("GET", path, rpc=_by_json_rpc(filters), output=name)


def queue_call(filters: dict[str, str], format: str) -> ApiCall:
    """The export in the background, as a request."""
    return ApiCall("POST", "/api/v1/exports", {"format": format, "filters": filters})


def _by_json_rpc(filters: dict[str, str]) -> tuple[str, dict[str, Any]] | None:
    """JSON-RPC exports the trajectories of one job, and knows some of the filters."""
    readers: dict[str, Any] = {"iteration": int, "min_reward": float, "since": str, "until": str}
    given = {name: value for name, value in filters.items() if name != "job"}
    if "job" not in filters or not set(given) <= {*readers, "success"} or given.get("success", "true") != "true":
        return None
    try:
        known = {name: readers[name](value) for name, value in given.items() if name in readers}
    except ValueError:
        return None
    known |= {"success_only": True} if "success" in given else {}
    return "training.export_trajectories", {"job_id": filters["job"]} | ({"filters": known} if known else {})


@post_page
def start(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "export", current_organization(actor))
    filters, format = _filters(request.POST), request.POST.get("format", "")
    try:
        export_queue(actor, filters, format=format)
    except Invalid as error:
        return _new(request, actor, filters, error=error.message, format=format)
    messages.success(request, "The export is being written. Its file can be downloaded here once it is done.")
    return redirect("experiences:exports")


@page
def streamed(request: HttpRequest, actor: Actor) -> HttpResponse | StreamingHttpResponse:
    """The export at once, for what is not too much to wait for."""
    filters, format = _filters(request.GET), request.GET.get("format", "")
    format_require(format)
    try:
        found = export_start(actor, filters, format=format)
    except Invalid as error:
        return _new(request, actor, filters, error=error.message, format=format)
    headers = {"Content-Disposition": f'attachment; filename="{FORMATS[format].name}"'}
    return StreamingHttpResponse(stream(found, format), content_type=FORMATS[format].media, headers=headers)


@page
def download(request: HttpRequest, actor: Actor, export_id: Any) -> HttpResponseBase:
    export = export_get(actor, export_id)
    return file_answer(request, export_file(actor, export))


@post_page
def cancel(request: HttpRequest, actor: Actor, export_id: Any) -> HttpResponse:
    export_cancel(actor, export_get(actor, export_id))
    messages.success(request, "The export is cancelled; what was written is deleted.")
    return redirect("experiences:exports")


def _filters(given: QueryDict) -> dict[str, str]:
    """The filters of the list of trajectories, as an export takes them, without other parameters of the address."""
    named = {NAMES.get(name, name): value for name, value in given.items()}
    return filters_stored({name: value for name, value in named.items() if name in TrajectoryFilters.base_filters})
