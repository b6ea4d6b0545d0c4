"""Every address of the site, read from the resolver itself. Only the exceptions are named, each with its reason."""

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


def all_routes() -> list[str]:
    return [route for route, _ in routes()]


def of_admin(route: str) -> bool:
    return route.startswith("admin/")


def of_rest(route: str) -> bool:
    return route.startswith("api/v1/") and route not in PUBLIC and route != "api/v1/jsonrpc"


def rest_reads() -> set[str]:
    """Addresses of REST that are read, without their prefix."""
    values = {route for route, pattern in routes() if "get" in (getattr(pattern.callback, "actions", None) or {})}
    return {route.removeprefix("api/v1/") for route in values if of_rest(route)}


# Addresses for people without an account. All others ask who is there: tests/test_doors.py walks them.
PUBLIC = {
    "sign-in/provider/", "sign-in/provider/back/",  # see tests/tenancy/test_single_sign_on.py
    "sign-in/passkey/", "sign-in/passkey/begin/",  # see tests/tenancy/test_passkeys.py
    "sign-in/code/", "sign-in/second-factor/",  # see tests/tenancy/test_second_factor.py
    "sign-in/", "sign-out/", "password/forgotten/",  # see tests/tenancy/test_passwords.py
    ".well-known/jwks.json",  # public keys; see tests/tenancy/test_jwt_keys.py
    "api/v1/", "api/v1/docs/", "api/v1/docs/<slug:tag>/",  # see tests/api/test_reference.py
    "docs/", "docs/<path:path>",  # see tests/console/test_documents.py
    "health/live", "health/ready", "health/", "api/v1/schema/", "api/v1/token",
    "api/v1/token/refresh", "api/v1/token/revoke",
    # For people, but they end the session of those who walk here: see tests/tenancy/test_sign_in.py.
    "sign-out/everywhere/", "api/v1/me/sign-out-everywhere",
    "account/sign-ins/<uuid:sign_in_id>/end/", "api/v1/me/sessions/<uuid:pk>",  # see tests/tenancy/test_sign_ins.py
    "metrics",  # guards itself: a token, or loopback; see tests/api/test_operations.py
    "^api/(?P<rest>.*)$",  # says that nothing is there
    "admin/login/", "admin/logout/",
}  # fmt: skip
# Read-only pages for holders of a link; with another token they are not there.
SHARED = {"shared/<str:token>/", "shared/<str:token>/status/", "shared/<str:token>/series/"}
# For the holder of the link in a mail; see tests/tenancy/test_people.py.
INVITED = {"invitations/<str:token>/", "password/<str:person>/<str:token>/", "first-account/<str:token>/"}
# For services: keys and tokens with a scope of their own; see tests/experiences/playbooks/test_ace.py.
INTERNAL = {route for route in all_routes() if route.startswith("internal/")}
# All that remains is for people who signed in.
CONSOLE = {
    route
    for route in set(all_routes()) - PUBLIC - SHARED - INVITED - INTERNAL
    if not of_admin(route) and not route.startswith("api/")
}
