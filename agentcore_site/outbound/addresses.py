"""Classes of network addresses: which ones this site calls. Pure.

Addresses of the open internet are called. Private ones (also loopback) are called where the site's operator lists them.
Link-local addresses, the metadata services of clouds, multicast and reserved addresses are never called, listed or not.
An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NEVER: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host; Linux connects 0.0.0.0 to loopback
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "100.100.100.200/32",  # metadata of Alibaba
        "168.63.129.16/32",  # platform service of Azure
        "192.0.0.192/32",  # metadata of Oracle
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "::/128",
        "fe80::/10",  # link-local
        "fd00:ec2::/32",  # metadata of AWS
        "fd20:ce::/32",  # metadata of Google
        "ff00::/8",  # multicast
    )
)
GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")  # all that IANA has given out of IPv6
COMPATIBLE: Final = ipaddress.ip_network("::/96")  # an IPv4 address in its last bits, deprecated (RFC 4291)
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215: an operator's own prefixes
# Names that mean this host or the network around it, also if a resolver differs (RFC 6761, 6762, 8375; ICANN 2024).
LOCAL_NAMES: Final = re.compile(r"(.*\.)?(localhost|localdomain|local|internal|intranet|home\.arpa)|ip6-\w+|[^.]+")
HOST: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class AddressVerdict(IntEnum):
    """Verdicts on an address, the worst last. PRIVATE: it is not called because the operator has not listed it."""

    CALLED = 0
    PRIVATE = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class AllowList:
    """The private hosts and networks that a site calls. ``hosts`` are names in small letters, or ``*.example.org``."""

    hosts: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Self:
        """Raises ValueError: an entry is no host, address or network."""
        hosts, networks = [], []
        for entry in entries:
            text = entry.strip().lower().removesuffix(".")
            try:
                networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
            except ValueError:
                if not HOST.fullmatch(text) or "/" in text:
                    raise ValueError(
                        f"{entry!r} is no host name, address or network. Write gpu.example.org, 10.0.0.5 or 10.0.0.0/8."
                    ) from None
                hosts.append(text)
        return cls(tuple(hosts), tuple(networks))

    def has_host(self, host: str) -> bool:
        return any(host_matches(host, pattern) for pattern in self.hosts)

    def judge(self, address: Address, *, host: str = "") -> AddressVerdict:
        """``host`` is the name that led to ``address``."""
        inner = carried(address)
        if inner:
            return max(self.judge(one, host=host) for one in inner)
        if any(address in network for network in NEVER):
            return AddressVerdict.NEVER
        listed = any(address in network for network in self.networks) or bool(host and self.has_host(host))
        return AddressVerdict.CALLED if listed or is_public(address) else AddressVerdict.PRIVATE


def host_matches(host: str, pattern: str) -> bool:
    """Whether ``host`` is ``pattern``, or below it where that is ``*.example.org``."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def is_local_name(host: str) -> bool:
    """Whether a name means this host or its own network, without asking a resolver."""
    return LOCAL_NAMES.fullmatch(host) is not None


def is_public(address: Address) -> bool:
    """Whether an address belongs to the open internet."""
    if isinstance(address, ipaddress.IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def carried(address: Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries: packets to it may arrive at any of them."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in NAT64 or (address in COMPATIBLE and number > 1):
        return [last]
    if address in NAT64_LOCAL:  # a /96 of its own, or the /48 itself, whose bits 64 to 71 are skipped (RFC 6052, 2.2)
        middle = ipaddress.IPv4Address((number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF))
        return [one for one in (last, middle) if int(one)] or [last]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return list(address.teredo or ())
