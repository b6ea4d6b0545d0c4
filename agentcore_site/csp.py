"""The content security policy, with the exceptions that the admin's theme needs, under ``/admin/`` only."""

from __future__ import annotations

from typing import Any, Final

from csp.middleware import CSPMiddleware
from django.http import HttpRequest, HttpResponseBase

# Alpine evaluates the expressions in the theme's templates, which also bear style attributes. No inline script is
# allowed, no script or style from anywhere else, and of inline style sheets two by their digests: the theme's colours
# and what htmx adds. An upgrade that changes them fails tests/e2e/test_admin.py, which prints the new digest.
OF_ADMIN: Final = {
    "script-src": ["'unsafe-eval'"],
    "style-src": [
        "'sha256-CftXQ/6rIQ3AMOrJUsQzoK+KGLgk4scJJlfXyvE/1mQ='",
        "'sha256-bsV5JivYxvGywDAZ22EZJKBFip65Ng9xoJVLbBg7bdo='",
    ],
    "style-src-attr": ["'unsafe-inline'"],
}


class ContentSecurityPolicy(CSPMiddleware):
    def get_policy_parts(self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False) -> Any:
        parts = super().get_policy_parts(request, response, report_only)
        if request.path_info.startswith("/admin/"):
            parts.update = OF_ADMIN | (parts.update or {})
        return parts
