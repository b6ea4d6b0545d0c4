"""Rate limits per key."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agentcore_site.lib.broker import broker_asked
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.authentication import actor_of


class KeyThrottle(SimpleRateThrottle):
    """Counts by API key, else by person, else by address. With Redis away nothing is limited and nothing fails."""

    scope = "key"
    cache = cache

    def get_cache_key(self, request: Request, view: Any) -> str:
        via = actor_of(request).interface
        who = via.replace(" ", "-") if via.startswith("key ") else getattr(request.user, "pk", None)
        return self.cache_format % {"scope": self.scope, "ident": who or self.get_ident(request)}

    def get_ident(self, request: Request) -> str:
        return client_address(request)

    def allow_request(self, request: Request, view: Any) -> bool:
        try:
            with broker_asked():
                return bool(super().allow_request(request, view))
        except RedisError:
            return True


class TokenThrottle(KeyThrottle):
    """Slower for the address where passwords are tried."""

    scope = "token"

    def get_cache_key(self, request: Request, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}
