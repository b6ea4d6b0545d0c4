"""Signing in by the provider: the way there, and the way back."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from agentcore_site.console.address import own_address
from agentcore_site.console.pages import secret_page
from agentcore_site.lib.errors import DomainError, Missing
from agentcore_site.lib.links import absolute
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.codes import factor_of, is_required
from agentcore_site.tenancy.models import Passkey
from agentcore_site.tenancy.sign_in import CodeNeeded, EnrolmentNeeded, provider_refused
from agentcore_site.tenancy.single_sign_on.config import is_on
from agentcore_site.tenancy.single_sign_on.errors import ProviderUnavailable, SignOnRefused
from agentcore_site.tenancy.single_sign_on.people import person_of, said_second_factor
from agentcore_site.tenancy.single_sign_on.provider import Attempt, authorization_address, claims_of
from agentcore_site.views.session import BACKEND, second_step

KEPT: Final = "single_sign_on"  # in the session: what this sign-in is recognised by
WAITS_SECONDS: Final = 600


@require_safe
@secret_page
def begin(request: HttpRequest) -> HttpResponse:
    _check_on()
    wanted = own_address(request, request.GET.get("next", ""), reverse("overview"))
    attempt = Attempt.begin()
    try:
        there = authorization_address(attempt, back=_back(request))
    except ProviderUnavailable as error:
        return _failed(request, error)
    request.session[KEPT] = attempt.kept() | {"at": int(time.time()), "next": wanted}
    return redirect(there)


@require_safe
@secret_page
def back(request: HttpRequest) -> HttpResponse:
    _check_on()
    kept = request.session.pop(KEPT, None)  # good once
    try:
        claims = _claims(request, kept)
        person = person_of(claims, ip=client_address(request))
    except SignOnRefused as error:
        provider_refused(request, error.message)
        return _failed(request, error)
    except ProviderUnavailable as error:
        return _failed(request, error)
    if is_required(person) and not said_second_factor(claims):
        has_one = factor_of(person) or Passkey.objects.filter(user=person).exists()
        return second_step(request, (CodeNeeded if has_one else EnrolmentNeeded)(person), kept["next"])
    login(request, person, backend=BACKEND)
    return redirect(kept["next"])


def _claims(request: HttpRequest, kept: Any) -> dict[str, Any]:
    given = request.GET.get("state", "")
    is_ours = kept and secrets.compare_digest(str(kept["state"]).encode(), given.encode("utf-8", "replace"))
    if not is_ours or time.time() - kept["at"] > WAITS_SECONDS:
        raise SignOnRefused("This answer belongs to no open sign-in of this browser. Start again.")
    if request.GET.get("iss", settings.OIDC_ISSUER) != settings.OIDC_ISSUER:  # RFC 9207
        raise SignOnRefused("This answer is from another provider. Start again.")
    if "error" in request.GET:
        raise SignOnRefused(f"{settings.OIDC_NAME} did not sign you in.")
    return claims_of(Attempt.of(kept), code=request.GET.get("code", ""), back=_back(request))


def _back(request: HttpRequest) -> str:
    return absolute(request, reverse("single_sign_on_back"))


def _check_on() -> None:
    if not is_on():
        raise Missing("Single sign-on is not set up here.")


def _failed(request: HttpRequest, error: DomainError) -> HttpResponse:
    context = {"problem": error.message, "name": settings.OIDC_NAME}
    return render(request, "account/sign_on_failed.html", context, status=error.code)
