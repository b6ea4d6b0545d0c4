"""The rules for calls to addresses that people and models enter, and the check of such an address. Pure.

The process says once where its rules come from (``configure``); until then only the open internet is called.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from dataclasses import dataclass, field
from typing import Final
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

from yarl import URL

from agentcore_site.outbound.addresses import HOST, Address, AddressVerdict, AllowList, is_local_name
from agentcore_site.outbound.errors import AddressRefused

LOOK_UP_SECONDS: Final = 1.0  # for a name, while a person waits for a form
NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
FORM: Final = "Write an address like https://api.example.org/v1, in plain letters and digits."
SPELLING: Final = "Write a numeric host in its usual form, such as 192.0.2.10 or [2001:db8::10]."
PRIVATE: Final = (
    "That host is in a private network, which this site does not call. Enter a public address, or ask the site's"
    " operator to list the host in OUTBOUND_ALLOW."
)
BANNED: Final = (
    "That host is a link-local, metadata, multicast or reserved address, which is never called. Enter the service's"
    " own address."
)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address. ``proxy`` is the proxy that leads there; None: it is called directly."""

    url: URL
    proxy: URL | None = None


@dataclass(frozen=True)
class OutboundPolicy:
    """Rules for outbound calls.

    ``ca_file`` holds certificates to trust beside those of the operating system. ``proxies`` are those of the
    environment, as ``urllib.request.getproxies_environment`` gives them: by scheme, and exceptions under "no".
    """

    allowed: AllowList = field(default_factory=AllowList)
    ca_file: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict, hash=False)

    def target(self, address: str) -> Target:
        """Checks what an address itself says; the addresses of its name are checked when it is called.

        Raises:
            AddressRefused: it is malformed, or leads to where this site does not call.
        """
        url = parsed(address)
        host = host_of(url)
        literal = literal_of(host)
        if literal is not None:
            self.check(literal)
        proxy = self._proxy(url, host)
        # A local name may lead into a listed network; the check of the connection decides, where we make it.
        may_be_listed = proxy is None and self.allowed.networks and not host.endswith("localhost")
        if literal is None and is_local_name(host) and not (self.allowed.has_host(host) or may_be_listed):
            raise AddressRefused(PRIVATE)
        return Target(url, proxy)

    def check(self, address: Address, *, host: str = "") -> None:
        """Raises AddressRefused: ``address`` may not be called."""
        verdict = self.allowed.judge(address, host=host)
        if verdict is not AddressVerdict.CALLED:
            raise AddressRefused(PRIVATE if verdict is AddressVerdict.PRIVATE else BANNED)

    def check_entered(self, address: str) -> None:
        """Checks an address that a person saves, with the addresses of its name as they are now. A name that is not
        known, or not found in a second, is left to the check at each connection.

        Raises:
            AddressRefused: as ``target``.
        """
        target = self.target(address)
        host = host_of(target.url)
        if target.proxy is None and literal_of(host) is None:
            for found in resolved(host):
                self.check(found, host=host)

    def _proxy(self, url: URL, host: str) -> URL | None:
        proxy = self.proxies.get(url.scheme)
        if not proxy or proxy_bypass_environment(f"{host}:{url.port}", dict(self.proxies)):
            return None
        return URL(proxy if "://" in proxy else f"http://{proxy}")


def parsed(address: str) -> URL:
    """The address as the HTTP client reads it.

    Raises:
        AddressRefused: it is no http or https address, holds credentials, or its host is spelled in a disguised way.
    """
    text = address.strip()
    if not text.isprintable() or re.search(r"[\s\\]", text):
        raise AddressRefused(FORM)
    try:
        url = URL(text)
        written, port = url.host or "", url.port
    except ValueError:
        raise AddressRefused(FORM) from None
    if url.scheme not in {"http", "https"} or not written:
        raise AddressRefused("An address begins with http:// or https:// and names a host.")
    if "@" in _authority(text):
        raise AddressRefused("An address must hold no user or password: a secret belongs in a field of its own.")
    if port is None or not 0 < port < 2**16:
        raise AddressRefused("A port is a number from 1 to 65535.")
    host = host_of(url)
    if literal_of(host) is None and not HOST.fullmatch(host):
        raise AddressRefused(FORM)
    if is_numeric(host) and not _is_written(host, text):
        raise AddressRefused(SPELLING)
    return url


def host_of(url: URL) -> str:
    """The host in small letters, without the dot that ends a full name."""
    return (url.raw_host or "").lower().removesuffix(".")


def literal_of(host: str) -> Address | None:
    """The address that a host is; None where it is a name.

    Raises:
        AddressRefused: it is a number in another form than the usual one, which some resolvers read as an address.
    """
    if "%" in host:
        raise AddressRefused(SPELLING)
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        if is_numeric(host):
            raise AddressRefused(SPELLING) from None
        return None


def is_numeric(host: str) -> bool:
    """Whether a host is an address or would be read as one (WHATWG URL: it ends in a number)."""
    return ":" in host or NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _authority(text: str) -> str:
    """Host and port as they are written."""
    return re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0].lower()


def _is_written(host: str, text: str) -> bool:
    """Whether the text has a numeric host as it is: no look-alike digits, no dot behind it."""
    authority = _authority(text)
    return authority.startswith("[") or re.fullmatch(re.escape(host) + r"(:\d*)?", authority) is not None


# Look-ups that a form waits for: a resolver that hangs must not take more threads than these.
_look_ups: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="outbound-names")


def resolved(host: str) -> list[Address]:
    """The addresses of a name by the system's resolver; none where it is not known, or not in time."""
    try:
        found = _look_ups.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM).result(LOOK_UP_SECONDS)
    except (TooSlow, OSError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]


_source: Callable[[], OutboundPolicy] = OutboundPolicy


def configure(source: Callable[[], OutboundPolicy]) -> None:
    """Says where this process's rules come from; they are asked for with each new client and each check."""
    global _source
    _source = source


def current_policy() -> OutboundPolicy:
    return _source()
