"""Passkeys: made and removed on the page *Signing in*, used on the sign-in page and after a password."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentcore_site.console.address import own_address
from agentcore_site.console.pages import post_page, secret_page
from agentcore_site.identity.passkeys import (
    WRONG,
    challenge_begin,
    challenge_taken,
    passkey_add,
    passkey_begin,
    passkey_remove,
)
from agentcore_site.lib.errors import Conflict, DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.sign_in import Tries, passkey_refused
from agentcore_site.tenancy.single_sign_on.people import passwords_are_off
from agentcore_site.views.account import account_page
from agentcore_site.views.session import home_of, signed_in, waiting

KEPT: Final = "passkey"  # in the session: what the browser was asked to sign


@post_page
def begin(request: HttpRequest, actor: Actor) -> HttpResponse:
    options, request.session[KEPT] = passkey_begin(actor)
    return JsonResponse(options)


@post_page
def add(request: HttpRequest, actor: Actor) -> HttpResponse:
    sent = request.POST
    try:
        made = passkey_add(
            actor,
            request.session.pop(KEPT, None),  # good once
            name=sent.get("name", ""),
            answer=sent.get("answer", ""),
            code=sent.get("code", ""),
        )
    except (Invalid, Conflict) as error:
        return account_page(request, actor, problem=error)
    messages.success(request, f"{made.name} signs you in from now on.")
    return redirect("account")


@post_page
def remove(request: HttpRequest, actor: Actor, passkey_id: UUID) -> HttpResponse:
    try:
        passkey_remove(actor, passkey_id, code=request.POST.get("code", ""))
    except (Invalid, Conflict) as error:
        return account_page(request, actor, problem=error)
    messages.success(request, "The passkey was removed. Delete the passkey on your device, too.")
    return redirect("account")


@require_POST
@secret_page
def sign_in_begin(request: HttpRequest) -> HttpResponse:
    """The challenge that the browser signs: by any passkey, or after a right password by one of that person's."""
    found = waiting(request)
    try:
        options, request.session[KEPT] = challenge_begin(found[0] if found else None)
    except DomainError as error:
        return JsonResponse({"problem": error.message}, status=error.code)
    return JsonResponse(options)


@require_POST
@secret_page
def sign_in(request: HttpRequest) -> HttpResponse:
    found, state = waiting(request), request.session.pop(KEPT, None)
    person, target = found or (None, "")
    address = client_address(request)
    # Before it is known whose passkey it is, wrong ones are counted by address alone.
    tries = Tries(person.get_username() if person else f"passkeys from {address}", address)
    tries.begin()
    used = challenge_taken(state, request.POST.get("answer", ""), person=person)
    if used is None or (person is None and passwords_are_off(used.user)):
        passkey_refused(request, person)
        return _refused(request, again="sign_in" if person is None else "sign_in_code")
    tries.succeed()
    if not target:
        target = own_address(request, request.POST.get("next", ""), home_of(used.user))
    return signed_in(request, used.user, target)


def _refused(request: HttpRequest, *, again: str) -> HttpResponse:
    context = {"problem": WRONG, "again": reverse(again)}
    return render(request, "account/passkey_failed.html", context, status=400)
