"""Forms of notes and pins, for the list of jobs and the page of a job."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.urls import reverse

from agentcore_site.console.address import own_address
from agentcore_site.console.pages import post_page
from agentcore_site.tenancy.actors import Actor
from training.selectors.runs import run_get
from training.services.notes import comment_add, comment_edit, comment_remove, job_describe, job_pin, job_unpin


@post_page
def note(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    run = run_get(actor, job_id)
    job_describe(actor, run, note=request.POST.get("note", ""), tags=request.POST.get("tags", "").split(","))
    messages.success(request, "Note and tags were saved.")
    return redirect("training:job", job_id=run.pk)


@post_page
def comment(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    run = run_get(actor, job_id)
    made = comment_add(actor, run, request.POST.get("text", ""))
    return redirect(f"{resolve_url('training:job', job_id=run.pk)}#comment-{made.pk}")


@post_page
def recomment(request: HttpRequest, actor: Actor, job_id: Any, comment_id: UUID) -> HttpResponse:
    run = run_get(actor, job_id)
    comment_edit(actor, run, comment_id, request.POST.get("text", ""))
    return redirect(f"{resolve_url('training:job', job_id=run.pk)}#comment-{comment_id}")


@post_page
def uncomment(request: HttpRequest, actor: Actor, job_id: Any, comment_id: UUID) -> HttpResponse:
    run = run_get(actor, job_id)
    comment_remove(actor, run, comment_id)
    return redirect(f"{resolve_url('training:job', job_id=run.pk)}#comments")


@post_page
def pin(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    job_pin(actor, run_get(actor, job_id))
    return _back(request)


@post_page
def unpin(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    job_unpin(actor, run_get(actor, job_id))
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    return redirect(own_address(request, request.POST.get("next", ""), reverse("training:jobs")))
