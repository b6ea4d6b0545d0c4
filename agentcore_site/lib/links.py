"""Addresses of our own pages, as people outside reach them."""

from __future__ import annotations

from typing import Any

from django.conf import settings


def absolute(request: Any, path: str) -> str:
    """Under PUBLIC_URL, else the address of the request, which may differ behind a proxy."""
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else str(request.build_absolute_uri(path))


def link_in_mail(path: str) -> str:
    """A line of a mail that leads to a page. Without PUBLIC_URL the site does not know its own address."""
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else f"On this site: {path}"


def site_of(request: Any) -> str:
    """The site's address as people outside reach it, without a slash at its end."""
    return absolute(request, "/").removesuffix("/")
