"""Signing in and out."""

from __future__ import annotations

from django import forms
from django.contrib.auth import logout
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from agentcore_site.console.pages import post_page
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.tokens import sign_out_everywhere


class SignIn(LoginView):
    """The sign-in form. Wrong passwords are counted by the backend (``tenancy.sign_in``)."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        response = super().form_invalid(form)  # type: ignore[arg-type]
        response.status_code = 400
        return response


class SignOut(LogoutView):
    """Signs out; only by POST, so that no link can do it."""


@post_page
def everywhere(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Ends every session and token of the person, this one too."""
    sign_out_everywhere(actor)
    logout(request)
    return redirect("sign_in")
