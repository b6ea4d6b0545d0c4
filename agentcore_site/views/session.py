"""Signing in and out: a password, then a code of the second factor for who has one."""

from __future__ import annotations

import time
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model, login, logout
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentcore_site.console.address import own_address
from agentcore_site.console.pages import post_page, secret_page
from agentcore_site.identity.first_account import has_accounts
from agentcore_site.identity.passkeys import has_passkey, passkeys_are_on
from agentcore_site.identity.second_factor import WRONG, enrolment_confirm, enrolment_of, qr_code, secret_of
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.codes import code_taken, factor_of
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.sign_in import CodeNeeded, EnrolmentNeeded, Tries, code_refused
from agentcore_site.tenancy.single_sign_on.config import is_on
from agentcore_site.tenancy.tokens import sign_out_everywhere

WAITING: Final = "second_step"  # in the session: who gave a right password, and has one step to go
WAITS_SECONDS: Final = 600
BACKEND: Final = "agentcore_site.tenancy.sign_in.CountingBackend"


class SignIn(LoginView):
    """The sign-in form. Wrong passwords are counted by the backend (``tenancy.sign_in``)."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().post(request, *args, **kwargs)
        except (CodeNeeded, EnrolmentNeeded) as needed:
            return second_step(request, needed, self.get_redirect_url() or home_of(needed.person))

    def get_default_redirect_url(self) -> str:
        return home_of(self.request.user)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        provider = settings.OIDC_NAME if is_on() else ""
        return super().get_context_data(**kwargs) | {
            "provider": provider,
            "passkeys": passkeys_are_on(),
            "empty": not has_accounts(),
        }

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        response = super().form_invalid(form)  # type: ignore[arg-type]
        response.status_code = 400
        return response


def home_of(person: Any) -> str:
    """A person's first page: the summary for those who only watch, the overview for others."""
    roles = {membership.role for membership in Actor(person).memberships.values()}
    return reverse("summary" if roles == {Role.STAKEHOLDER} else "overview")


def admin_sign_in(request: HttpRequest) -> HttpResponseBase:
    """The Django admin's own form, with the same second step."""
    try:
        return admin.site.login(request)
    except (CodeNeeded, EnrolmentNeeded) as needed:
        wanted = request.POST.get("next") or request.GET.get("next") or ""
        return second_step(request, needed, own_address(request, wanted, reverse("admin:index")))


def second_step(request: HttpRequest, needed: CodeNeeded | EnrolmentNeeded, target: str) -> HttpResponse:
    """Notes who gave a right password, in a session of a new name, and leads on."""
    request.session.flush()
    request.session[WAITING] = {
        "person": needed.person.pk,
        "password": needed.person.get_session_auth_hash(),
        "at": int(time.time()),
        "next": target,
    }
    return redirect("sign_in_code" if isinstance(needed, CodeNeeded) else "sign_in_enrol")


def waiting(request: HttpRequest) -> tuple[Any, str] | None:
    """The person who has to give a second factor, and the address to open then; None without one, or after its time."""
    noted = request.session.get(WAITING)
    if not noted or time.time() - noted["at"] > WAITS_SECONDS:
        return None
    person = get_user_model().objects.filter(pk=noted["person"], is_active=True).first()
    if person is None or person.get_session_auth_hash() != noted["password"]:
        return None
    return person, noted["next"]


@require_http_methods(["GET", "POST"])
@secret_page
def code(request: HttpRequest) -> HttpResponse:
    """The code of who gave a right password."""
    found = waiting(request)
    if found is None:
        return redirect("sign_in")
    person, target = found
    problem = ""
    if request.method == "POST":
        tries = Tries(person.get_username(), client_address(request))
        tries.begin()
        if code_taken(person, request.POST.get("code", "")):
            tries.succeed()
            return signed_in(request, person, target)
        code_refused(request, person)
        problem = WRONG
    context = {"problem": problem, "factor": factor_of(person), "passkey": has_passkey(person)}
    return render(request, "account/code.html", context, status=400 if problem else 200)


@require_http_methods(["GET", "POST"])
@secret_page
def enrol(request: HttpRequest) -> HttpResponse:
    """Setting up an authenticator, for who gave a right password and has to have one."""
    found = waiting(request)
    if found is None:
        return redirect("sign_in")
    person, target = found
    problem = ""
    if request.method == "POST":
        actor = Actor(person, ip=client_address(request), interface="console")
        try:
            codes = enrolment_confirm(actor, request.POST.get("code", ""))
        except Invalid as error:
            problem = error.message
        else:
            Tries(person.get_username(), actor.ip).succeed()
            signed_in(request, person, target)
            return render(request, "account/recovery_first.html", {"codes": codes, "target": target})
    row = enrolment_of(person)
    context = {"qr": qr_code(row), "secret": secret_of(row), "problem": problem}
    return render(request, "account/enrol_first.html", context, status=400 if problem else 200)


def signed_in(request: HttpRequest, person: Any, target: str) -> HttpResponse:
    request.session.pop(WAITING, None)
    login(request, person, backend=BACKEND)
    return redirect(target)


class SignOut(LogoutView):
    """Signs out; only by POST, so that no link can do it."""


@post_page
def everywhere(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Ends every session and token of the person, this one too."""
    sign_out_everywhere(actor)
    logout(request)
    return redirect("sign_in")
