"""One's own account: where one is signed in, and the second factor."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page
from agentcore_site.identity.passkeys import NOT_HERE, passkeys_are_on, passkeys_of
from agentcore_site.identity.second_factor import (
    enrolment_confirm,
    enrolment_of,
    factor_remove,
    qr_code,
    recovery_replace,
    secret_of,
)
from agentcore_site.identity.sign_ins import sign_in_end, sign_ins_of
from agentcore_site.lib.errors import Conflict, DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.codes import factor_of, is_required


@page
def account(request: HttpRequest, actor: Actor) -> HttpResponse:
    return account_page(request, actor)


def account_page(request: HttpRequest, actor: Actor, *, problem: DomainError | None = None) -> HttpResponse:
    """The page, with what was refused."""
    context: dict[str, Any] = {
        "sign_ins": sign_ins_of(actor, session_key=request.session.session_key),
        "factor": factor_of(actor.user),
        "required": is_required(actor.user),
        "passkeys": passkeys_of(actor.user),
        "passkeys_on": passkeys_are_on(),
        "not_here": NOT_HERE,
        "problem": problem.message if problem else "",
    }
    return render(request, "account/account.html", context, status=problem.code if problem else 200)


@post_page
def end(request: HttpRequest, actor: Actor, sign_in_id: UUID) -> HttpResponse:
    sign_in_end(actor, sign_in_id)
    messages.success(request, "That session was signed out.")
    return redirect("account")


@page
def second_factor(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Setting up an authenticator; the answer to a right code shows the recovery codes, this once."""
    problem = ""
    if request.method == "POST":
        try:
            return _codes_shown(request, enrolment_confirm(actor, request.POST.get("code", "")))
        except Invalid as error:
            problem = error.message
    row = enrolment_of(actor.user)
    context = {"qr": qr_code(row), "secret": secret_of(row), "problem": problem}
    response = render(request, "account/enrol.html", context, status=400 if problem else 200)
    response["Cache-Control"] = "no-store, private"
    return response


@post_page
def recovery(request: HttpRequest, actor: Actor) -> HttpResponse:
    try:
        return _codes_shown(request, recovery_replace(actor, request.POST.get("code", "")))
    except Invalid as error:
        return account_page(request, actor, problem=error)


@post_page
def factor_off(request: HttpRequest, actor: Actor) -> HttpResponse:
    try:
        factor_remove(actor, request.POST.get("code", ""))
    except (Invalid, Conflict) as error:
        return account_page(request, actor, problem=error)
    messages.success(request, "Your second factor was removed.")
    return redirect("account")


def _codes_shown(request: HttpRequest, codes: list[str]) -> HttpResponse:
    response = render(request, "account/recovery.html", {"codes": codes})
    response["Cache-Control"] = "no-store, private"
    return response
