"""Datasets: the list, one with its rows and what is wrong with them, versions, files in and out."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.console.bulk import BulkAct, bulk, chosen_rows
from agentcore_site.console.columns import LISTS
from agentcore_site.console.pages import Sort, allowed, listing, matching, page, post_page, query_params, sent
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.rest.row_files import row_answer
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.selectors import dataset_get, dataset_rows_visible, dataset_versions, datasets_visible
from experiences.agents.services.datasets import dataset_archive, dataset_create, dataset_restore, dataset_update
from experiences.models import Dataset, DatasetRow
from experiences.models.trajectories import DatasetOrigin
from training.data.forms import PREVIEWED, DatasetForm, UploadForm
from training.data.kept_checks import checks_of
from training.data.mapping import ColumnMapping
from training.data.sample import SAMPLE, sample_rows
from training.data.uploads import preview, read_rows, shown_cell
from training.presenters.dataset_files import DatasetOut, dataset_file
from training.selectors.runs import runs_visible
from training.splits import split_counts

SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("name", "name", "name", descending=False),
    Sort("size", "most queries", "size"),
)
ROW_SORTS: Final = (Sort("index", "as uploaded", "index", descending=False),)
SHOWN: Final = (("", "Current"), ("archived", "Archived"), ("all", "All versions"))
FLAGS: Final = {
    "duplicate": "Duplicates",
    "contradiction": "Contradictions",
    "injection": "Possible attacks",
}
JOBS_SHOWN: Final = 10
COLUMNS_SHOWN: Final = 12  # of a file
MAPPINGS: Final = "dataset_mappings"  # in the session
MAPPINGS_KEPT: Final = 20


@page
def datasets(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = datasets_visible(actor)
    query, shown = query_params(request, "q", "show")
    rows = matching(everything, query, "name", "domain")
    if shown != "all":
        rows = rows.filter(archived_at__isnull=shown != "archived")
    if not shown:
        rows = rows.filter(followed_by=None)
    found = listing(request, rows, SORTS, one="dataset", of=everything, columns=DatasetOut)
    context = {"listing": found, "rows": found.rows, "shows": SHOWN[1:], "shown": shown}
    return render(request, "training/datasets.html", context | LISTS["datasets"].context(request))


BULK: Final = {
    "archive": BulkAct("archived", dataset_archive, undo="restore"),
    "restore": BulkAct("restored", dataset_restore, undo="archive"),
}


@post_page
def chosen(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Archives or restores the datasets that were chosen in the list."""
    require(actor, "dataset.edit", current_organization(actor))
    return bulk(
        request,
        actor,
        BULK,
        nouns=("dataset", "datasets"),
        found=lambda ids: chosen_rows(datasets_visible(actor), ids, "dataset"),
        page=reverse("training:datasets"),
    )


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """A file becomes a dataset, or with ``?of=`` the next version of one."""
    require(actor, "dataset.edit", current_organization(actor))
    [of] = query_params(request, "of")
    before = dataset_get(actor, of) if of else None
    began = timezone.now()
    form = UploadForm(sent(request), request.FILES or None)
    chosen = _chosen(request)
    if before is not None:
        form.fields["name"].help_text = f"Empty: {before.name}, as before."
    if made := form.applied(_uploaded, actor, before=before):
        _remember(request, chosen)
        said = f"{made.name}, version {made.version}, has {made.size:,} quer{'y' if made.size == 1 else 'ies'}."
        if made.created_at < began:
            said = f"These rows are there already, as {made.name}, version {made.version}: they are not stored twice."
        messages.success(request, said)
        return redirect("training:dataset", dataset_id=made.pk)
    back = reverse("training:dataset", args=[before.pk]) if before is not None else reverse("training:datasets")
    context = {"form": form, "before": before, "back": back}
    return render(request, "training/dataset_new.html", context, status=form.status)


@post_page
def sample(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The sample data become a dataset, for people who have none at hand."""
    made = dataset_create(
        actor, name="Sample: support messages", rows=sample_rows(), origin=DatasetOrigin.FILE, origin_detail=SAMPLE.name
    )
    messages.success(request, f"{made.name} has {made.size:,} queries. The correct answers follow a shop's own rules.")
    return redirect("training:dataset", dataset_id=made.pk)


@post_page
def preview_file(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The columns and first rows of a chosen file, what they become, and how answers will be graded: a part of the
    form."""
    require(actor, "dataset.edit", current_organization(actor))
    upload = request.FILES.get("file")
    context: dict[str, Any] = {}
    if upload is not None:
        try:
            content = upload.read()
            found = preview(str(upload.name), content, _chosen(request))
            known = _remembered(request, found.columns)
            if known is not None and _chosen(request) is None:
                found = preview(str(upload.name), content, known)
            cells = [
                [(name, shown_cell(row.get(name))) for name in found.columns[:COLUMNS_SHOWN]] for row in found.first
            ]
            context = {
                "preview": found,
                "cells": cells,
                "becomes": [(row["query"], shown_cell(row.get("expected_outcome"))) for row in found.rows],
                "columns": found.columns[:COLUMNS_SHOWN],
                "attributes": PREVIEWED,
            }
        except DomainError as error:
            context = {"fault": error.message}
    return render(request, "training/_dataset_preview.html", context)


def _chosen(request: HttpRequest) -> ColumnMapping | None:
    """The mapping that a person chose in the form; None: it is guessed."""
    query = request.POST.get("query_column", "").strip()
    return ColumnMapping(query, request.POST.get("answer_column", "").strip()) if query else None


def _remember(request: HttpRequest, mapping: ColumnMapping | None) -> None:
    """For the next file with these columns, in the session."""
    if mapping is not None:
        known = request.session.get(MAPPINGS, [])
        pair = [mapping.query, mapping.answer]
        request.session[MAPPINGS] = [pair, *(one for one in known if one != pair)][:MAPPINGS_KEPT]


def _remembered(request: HttpRequest, columns: list[str]) -> ColumnMapping | None:
    known = request.session.get(MAPPINGS, [])
    return next((ColumnMapping(*one) for one in known if set(one) - {""} <= set(columns)), None)


@page
def dataset(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    one = dataset_get(actor, dataset_id)
    may = allowed(actor, one.organization_id)
    everything = dataset_rows_visible(actor, one) if "data.view" in may else DatasetRow.objects.none()
    query, flag = query_params(request, "q", "flag")
    rows = matching(everything, query, "query")
    flags: dict[int, str] = {}
    if flag in FLAGS:
        found = [mark for mark in checks_of(one).flags if mark.kind == flag]
        flags = {mark.index: mark.words for mark in found}
        rows = rows.filter(index__in=list(flags))
    train, selection, held_out = split_counts(one.size)
    context = {
        "dataset": one,
        "listing": listing(request, rows, ROW_SORTS, one="row", of=everything),
        "flag": flag,
        "flag_title": FLAGS.get(flag, ""),
        "flags": flags,
        "versions": dataset_versions(one),
        "runs": list(runs_visible(actor).filter(dataset=one).order_by("-job__created_at")[:JOBS_SHOWN]),
        "split": {"train": train, "selection": selection, "held_out": held_out},
        "may": may,
    }
    return render(request, "training/dataset.html", context)


@page
def checks(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    """Findings about its rows: a part of its page, loaded when they are computed."""
    one = dataset_get(actor, dataset_id)
    found = checks_of(one)
    counts = [{"key": key, "title": title, "n": found.count(key)} for key, title in FLAGS.items()]
    context = {"dataset": one, "checks": found, "counts": counts}
    return render(request, "training/_dataset_checks.html", context)


@page
def edit(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    one = dataset_get(actor, dataset_id)
    require(actor, "dataset.edit", one.organization_id)
    form = DatasetForm.of(one, sent(request))
    if form.applied(dataset_update, actor, one):
        messages.success(request, "Saved.")
        return redirect("training:dataset", dataset_id=one.pk)
    context = {"form": form, "dataset": dataset_get(actor, dataset_id)}
    return render(request, "training/dataset_edit.html", context, status=form.status)


@post_page
def archive(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    one = dataset_archive(actor, dataset_get(actor, dataset_id))
    messages.success(request, f"{one.name} is archived: it is not offered any more. Its jobs keep it.")
    return redirect("training:dataset", dataset_id=one.pk)


@post_page
def restore(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    one = dataset_restore(actor, dataset_get(actor, dataset_id))
    messages.success(request, f"{one.name} is offered again.")
    return redirect("training:dataset", dataset_id=one.pk)


@page
def download(request: HttpRequest, actor: Actor, dataset_id: Any) -> StreamingHttpResponse:
    """Its rows as the JSONL that an upload takes, streamed."""
    one = dataset_get(actor, dataset_id)
    rows = row_answer(dataset_file(actor, one))
    record(actor, "dataset.downloaded", one, after={"size": one.size})
    return rows


def _uploaded(
    actor: Actor,
    *,  # the fields of the form
    file: Any,
    name: str = "",
    domain: str = "",
    query_column: str = "",
    answer_column: str = "",
    before: Dataset | None = None,
) -> Dataset:
    """``file``: an ``UploadedFile``.

    Raises:
        Invalid: the file can't be used; the message is the file's.
        Conflict, Forbidden, Insufficient: as ``dataset_create``.
    """
    try:
        mapping = ColumnMapping(query_column, answer_column) if query_column else None
        rows = read_rows(str(file.name), file.read(), mapping)
    except DomainError as error:
        raise Invalid(error.message, fields={"file": error.message}) from error
    own_name = "" if before is not None else str(file.name).rpartition(".")[0] or str(file.name)
    return dataset_create(
        actor,
        name=name or own_name,
        rows=rows,
        domain=domain,
        origin=DatasetOrigin.FILE,
        origin_detail=str(file.name),
        follows=before,
    )
