"""The network address of a client: the one function that reads it. Forwarding headers are believed of
``TRUSTED_PROXIES`` only."""

from __future__ import annotations

import ipaddress
from typing import Any

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(request: Any) -> str:
    """The address that a request (Django's or DRF's) came from, or nothing where it has none.

    ``X-Forwarded-For`` is read from its end, where the nearest proxy writes, as far as trusted proxies go: what
    a client made up in front of that is never reached.
    """
    address = _parsed(request.META.get("REMOTE_ADDR", ""))
    for hop in reversed(request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")):
        if address is None or not is_trusted(address):
            break
        before = _parsed(hop)
        if before is None:
            break
        address = before
    return "" if address is None else str(address)


def is_trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


def network_of(address: str) -> str:
    """What is counted as one client: an IPv4 address, or the /64 that a subscriber of IPv6 has to choose from."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address


def _parsed(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
