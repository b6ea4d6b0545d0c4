"""The network address of a client: the one function that reads it. Forwarding headers are believed of
``TRUSTED_PROXIES`` only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(request: Any) -> str:
    """The address that a request (Django's or DRF's) came from, or nothing where it has none."""
    return _address_of(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", ""))


def socket_address(scope: dict[str, Any]) -> str:
    """The same of an ASGI connection."""
    forwarded = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"x-forwarded-for"]
    peer = scope.get("client")
    return _address_of(peer[0] if peer else "", ",".join(forwarded))


def _address_of(peer: str, forwarded: str) -> str:
    """``forwarded`` (``X-Forwarded-For``) is read from its end, where the nearest proxy writes, as far as trusted
    proxies go: what a client made up in front of that is never reached."""
    address = _parsed(peer)
    for hop in reversed(forwarded.split(",")):
        if address is None or not is_trusted(address):
            break
        before = _parsed(hop)
        if before is None:
            break
        address = before
    return "" if address is None else str(address)


def networks(texts: Iterable[str]) -> list[str]:
    """Addresses and networks (``10.0.0.0/8``) as they are kept.

    Raises:
        ValueError: one is neither; the message names it.
    """
    found = []
    for text in filter(None, (one.strip() for one in texts)):
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"{text[:60]!r} is no address and no network, like 192.0.2.7 or 10.0.0.0/8.") from None
        found.append(str(network.network_address) if network.num_addresses == 1 else str(network))
    return list(dict.fromkeys(found))


def lies_in(address: str, texts: Sequence[str]) -> bool:
    """Whether an address is one of these, or in one of these networks. Of an address that is not known: no."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in ipaddress.ip_network(text) for text in texts)


def is_trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address, or the /64 that an IPv6 subscriber can choose from."""
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
