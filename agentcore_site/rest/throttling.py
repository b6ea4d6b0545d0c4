"""Rate limits per key."""

from __future__ import annotations

import time
from typing import Any, Final

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agentcore_site.lib.broker import broker_asked
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.authentication import actor_of

MINUTE: Final = 60


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


class BytesThrottle(KeyThrottle):
    """Counts the bytes of bodies, by the minute: of a few requests each may be work for seconds. A body counts as it
    arrives, and what it unpacks to once it is known (``count``); the body that passes the limit is still taken."""

    scope = "bytes"

    def get_rate(self) -> None:
        """The limit is of bytes."""

    def allow_request(self, request: Request, view: Any) -> bool:
        most = settings.OTLP_MB_PER_MINUTE * 2**20
        declared = str(request.META.get("CONTENT_LENGTH") or "0")
        length = int(declared) if declared.isdigit() else 0
        return not most or self.count(request, length) - length < most

    def count(self, request: Request, length: int) -> int:
        """Adds bytes. Returns the caller's bytes in this minute; 0 with Redis away."""
        place = f"{self.get_cache_key(request, None)}:{int(time.time() // MINUTE)}"
        try:
            with broker_asked():
                cache.add(place, 0, timeout=2 * MINUTE)
                return int(cache.incr(place, length))
        except RedisError:
            return 0

    def wait(self) -> float:
        return MINUTE - time.time() % MINUTE


class TokenThrottle(KeyThrottle):
    """Slower for the address where passwords are tried."""

    scope = "token"

    def get_cache_key(self, request: Request, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}
