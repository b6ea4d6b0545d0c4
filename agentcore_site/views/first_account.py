"""The page that makes the first account of an empty site."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth import get_user_model, login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from agentcore_site.console.forms import ServiceForm
from agentcore_site.console.pages import secret_page, sent
from agentcore_site.identity.first_account import first_account_check, first_account_create
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.views.session import BACKEND


class FirstAccountForm(ServiceForm):
    organization = forms.CharField(max_length=120, label="Organisation", help_text="The name of your team or company.")
    username = forms.CharField(
        max_length=150,
        label="User name",
        validators=[get_user_model().username_validator],
        widget=forms.TextInput(attrs={"autocomplete": "username"}),
    )
    email = forms.EmailField(label="E-mail address", widget=forms.EmailInput(attrs={"autocomplete": "email"}))
    password = forms.CharField(
        max_length=200, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )


@require_http_methods(["GET", "POST"])
@secret_page
def first_account(request: HttpRequest, token: str) -> HttpResponse:
    first_account_check(token)
    form = FirstAccountForm(sent(request))
    if person := form.applied(first_account_create, token, ip=client_address(request)):
        login(request, person, backend=BACKEND)
        messages.success(request, "Welcome. Admins invite others on the page People.")
        return redirect("overview")
    return render(request, "people/first_account.html", {"form": form}, status=form.status)
