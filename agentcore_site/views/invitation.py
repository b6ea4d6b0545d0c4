"""The page that an invitation's link leads to: who invites, where to, in which role; accept or decline."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentcore_site.console.pages import secret_page
from agentcore_site.identity.invitations import (
    invitation_accept,
    invitation_accept_new,
    invitation_decline,
    invitation_of,
)
from agentcore_site.lib.errors import Conflict, DomainError, Invalid
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.authentication import actor_of
from agentcore_site.tenancy.codes import is_required
from agentcore_site.tenancy.sign_in import EnrolmentNeeded
from agentcore_site.tenancy.single_sign_on.people import takes_no_passwords
from agentcore_site.views.session import second_step


@require_http_methods(["GET", "POST"])
@secret_page
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    return _answer(request, token) if request.method == "POST" else _invitation_page(request, token)


def _answer(request: HttpRequest, token: str) -> HttpResponse:
    if "decline" in request.POST:
        invitation_decline(token, ip=client_address(request))
        return render(request, "people/declined.html")
    try:
        if request.user.is_authenticated:
            invitation_accept(actor_of(request), token)
        else:
            if takes_no_passwords(invitation_of(token).organization):
                raise Conflict(f"People of this organisation sign in by {settings.OIDC_NAME}: do so, then accept.")
            person = invitation_accept_new(token, request.POST.get("password", ""), ip=client_address(request))
            if is_required(person):
                return second_step(request, EnrolmentNeeded(person), reverse("overview"))
            login(request, person)
    except (Invalid, Conflict) as error:
        return _invitation_page(request, token, error)
    messages.success(request, "Welcome: you are a member now.")
    return redirect("overview")


def _invitation_page(request: HttpRequest, token: str, error: DomainError | None = None) -> HttpResponse:
    row = invitation_of(token)
    provider = settings.OIDC_NAME if takes_no_passwords(row.organization) else ""
    context: dict[str, Any] = {"invitation": row, "problem": error.message if error else "", "provider": provider}
    return render(request, "people/invitation.html", context, status=error.code if error else 200)
