"""Every address of the site, read from the resolver itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

PARAMETER = re.compile(r"<(?:[a-z]+:)?(\w+)>")


def routes(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """(route, pattern) of every address, with parameters as they are declared."""
    for entry in (resolver or get_resolver()).url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, route)
        else:
            yield route, entry


def filled(route: str, values: dict[str, Any]) -> str:
    """The address with values in place of its parameters; a parameter without a value is a KeyError."""
    return "/" + PARAMETER.sub(lambda found: str(values[found.group(1)]), route)


def parameters(route: str) -> list[str]:
    return PARAMETER.findall(route)
