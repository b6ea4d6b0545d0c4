"""Choices of a person that one browser keeps, and no other device needs."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse

AGE: Final = 400 * 86_400  # seconds: as long as browsers keep a cookie


def keep_in_browser(request: HttpRequest, response: HttpResponse, name: str, value: str) -> HttpResponse:
    """The response with a cookie that scripts can't read."""
    response.set_cookie(name, value, max_age=AGE, samesite="Lax", secure=request.is_secure(), httponly=True)
    return response
