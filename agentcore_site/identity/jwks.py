"""``/.well-known/jwks.json``: the public keys by which others verify our tokens."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from agentcore_site.tenancy.jwt_keys import public_set

KEPT_SECONDS: Final = 300  # so long after a change others may still have the former set


@require_safe
def jwks(request: HttpRequest) -> HttpResponse:
    response = JsonResponse(public_set(), content_type="application/jwk-set+json")
    response["Cache-Control"] = f"public, max-age={KEPT_SECONDS}"
    return response
