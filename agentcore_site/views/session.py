"""Signing in and out."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.views import LoginView, LogoutView
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from redis.exceptions import RedisError

from agentcore_site.tenancy.authentication import client_ip

TRIES, PER_SECONDS = 20, 300


class SignIn(LoginView):
    """The sign-in form. After twenty wrong passwords in five minutes an address has to wait."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if _tries(request) >= TRIES:
            form = self.get_form()
            form.errors["__all__"] = form.error_class(["Too many tries from your address. Wait five minutes."])
            response = self.render_to_response(self.get_context_data(form=form), status=429)
            response["Retry-After"] = str(PER_SECONDS)
            return response
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        _count_try(self.request)
        response = super().form_invalid(form)  # type: ignore[arg-type]
        response.status_code = 400
        return response


class SignOut(LogoutView):
    """Signs out; only by POST, so that no link can do it."""


def _key(request: HttpRequest) -> str:
    return f"sign-in:{client_ip(request)}"


def _tries(request: HttpRequest) -> int:
    try:
        return int(cache.get(_key(request), 0))
    except RedisError:
        return 0  # with Redis away nothing is counted and nobody is locked out


def _count_try(request: HttpRequest) -> None:
    try:
        cache.add(_key(request), 0, PER_SECONDS)
        cache.incr(_key(request))
    except (RedisError, ValueError):
        return
