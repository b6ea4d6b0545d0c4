"""A forgotten password: asking for the mail, and the page that its link leads to. For people without a session."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from agentcore_site.console.pages import secret_page
from agentcore_site.identity.passwords import link_at, password_reset, reset_ask, reset_person
from agentcore_site.lib.errors import Invalid, TooMany
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.addresses import client_address


@require_http_methods(["GET", "POST"])
@secret_page
def forgotten(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return render(request, "people/password_forgotten.html")
    name, problem, status = request.POST.get("name", "")[:150], "", 400
    if not name.strip() or unstorable(name):
        problem = "Enter your e-mail address."
    else:
        try:
            reset_ask(name, link=link_at(request), ip=client_address(request))
            return render(request, "people/password_asked.html", {"name": name, "mailed": bool(settings.EMAIL_HOST)})
        except TooMany as error:
            problem, status = error.message, error.code
    return render(request, "people/password_forgotten.html", {"name": name, "problem": problem}, status=status)


@require_http_methods(["GET", "POST"])
@secret_page
def reset(request: HttpRequest, person: str, token: str) -> HttpResponse:
    problem = ""
    if request.method == "POST":
        try:
            password_reset(person, token, request.POST.get("password", ""), ip=client_address(request))
        except Invalid as error:
            problem = error.message
        else:
            messages.success(request, "The password was changed. Sign in with it.")
            return redirect("sign_in")
    context = {"person": reset_person(person, token), "problem": problem}
    return render(request, "people/password_reset.html", context, status=400 if problem else 200)
