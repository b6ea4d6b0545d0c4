"""Addresses of our own pages, as people outside reach them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http.request import split_domain_port


def placed(path: str) -> str:
    """A path of ours behind the one of PUBLIC_URL; ``reverse`` has put it there already."""
    place = settings.SUB_PATH
    return path if not place or path == place or path.startswith(f"{place}/") else f"{place}{path}"


def absolute(request: Any, path: str) -> str:
    """Under PUBLIC_URL, else the address of the request, which may differ behind a proxy."""
    path = placed(path)
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else str(request.build_absolute_uri(path))


def absolute_by_socket(request: Any, path: str) -> str:
    """Under PUBLIC_URL, else at the request's host and the port that its connection came to: links with a secret in
    them lead to no port that a Host header names."""
    if settings.PUBLIC_URL:
        return absolute(request, path)
    host, port = split_domain_port(request.get_host())[0], str(request.META.get("SERVER_PORT", ""))
    usual = "443" if request.is_secure() else "80"
    return f"{request.scheme}://{host}{f':{port}' if port and port != usual else ''}{path}"


def link_in_mail(path: str) -> str:
    """A line of a mail that leads to a page. Without PUBLIC_URL the site does not know its own address."""
    return f"{settings.PUBLIC_URL}{placed(path)}" if settings.PUBLIC_URL else f"On this site: {path}"


def site_of(request: Any) -> str:
    """The site's address as people outside reach it, without a slash at its end."""
    return absolute(request, "/").removesuffix("/")
