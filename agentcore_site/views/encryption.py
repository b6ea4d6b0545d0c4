"""Encryption of an organisation's texts, for its admins: its state, on, off, another key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page
from agentcore_site.encryption.selectors import encryption_state
from agentcore_site.encryption.services import encryption_end, job_stop, key_rotate, texts_move
from agentcore_site.jobs.selectors import job_get
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require


@page
def encryption(request: HttpRequest, actor: Actor, job_id: Any = None) -> HttpResponse:
    """Also as the page of a job that encrypts."""
    if job_id is not None:
        job_get(actor, job_id)
    organization = current_organization(actor)
    state = encryption_state(actor, organization)
    return render(request, "agentcore_site/encryption.html", {"state": state, "organization": organization})


@post_page
def rotate(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    done = "New data is encrypted with a new key; stored rows follow."
    return _changed(request, actor, organization_id, key_rotate, done)


@post_page
def end(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    done = "New data is not encrypted; stored rows are being decrypted."
    return _changed(request, actor, organization_id, encryption_end, done)


@post_page
def move(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    return _changed(request, actor, organization_id, texts_move, "Stored rows are being re-encrypted.")


@post_page
def stop(request: HttpRequest, actor: Actor, organization_id: Any) -> HttpResponse:
    done = "The job stops after its current rows. All rows stay readable."
    return _changed(request, actor, organization_id, job_stop, done)


def _changed(
    request: HttpRequest,
    actor: Actor,
    organization_id: Any,
    service: Callable[[Actor, Organization], object],
    done: str,
) -> HttpResponse:
    require(actor, "encryption.edit", organization_id)
    service(actor, Organization.objects.get(pk=organization_id))
    messages.success(request, done)
    return redirect("encryption")
