"""Console: annotations are made and changed on the page of their trajectory."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import page, post_page, sent
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.trajectories.annotations.forms import AnnotationForm
from experiences.trajectories.annotations.selectors import annotation_get, labels_used
from experiences.trajectories.annotations.services import annotation_create, annotation_delete, annotation_update
from experiences.trajectories.archive.reading import trajectory_rows
from experiences.trajectories.step_window import trajectory_light


@page
def annotate(request: HttpRequest, actor: Actor, trajectory_id: Any) -> HttpResponse:
    with trajectory_rows(actor, trajectory_id):
        row = trajectory_light(actor, trajectory_id)
    require(actor, "annotation.edit", row.organization_id)
    given = {"step": request.GET.get("step", "")}
    form = AnnotationForm(sent(request), initial=given, labels=labels_used(actor))
    if form.applied(annotation_create, actor, row):
        messages.success(request, "Noted.")
        return redirect(_annotations_url(row.pk))
    context = {"form": form, "row": row, "back": _annotations_url(row.pk)}
    return render(request, "trajectories/annotation.html", context, status=form.status)


@page
def edit(request: HttpRequest, actor: Actor, annotation_id: Any) -> HttpResponse:
    one = annotation_get(actor, annotation_id)
    require(actor, "annotation.edit", one.organization_id)
    form = AnnotationForm.of(one, sent(request), labels=labels_used(actor), placed=False)
    if form.applied(annotation_update, actor, one):
        messages.success(request, "Saved.")
        return redirect(_annotations_url(one.trajectory_id))
    context = {"form": form, "annotation": one, "back": _annotations_url(one.trajectory_id)}
    return render(request, "trajectories/annotation.html", context, status=form.status)


@post_page
def remove(request: HttpRequest, actor: Actor, annotation_id: Any) -> HttpResponse:
    one = annotation_get(actor, annotation_id)
    annotation_delete(actor, one)
    messages.success(request, "The annotation is gone.")
    return redirect(_annotations_url(one.trajectory_id))


def _annotations_url(trajectory_id: Any) -> str:
    return reverse("experiences:trajectory", args=[trajectory_id]) + "#annotations"
