"""The ``fetch`` tool: reads a page of the web as text. Off unless an agent's owner lists the hosts that it may read.

A model's address is an order from a stranger, so each hop of a request is checked: the host against the list, then the
addresses that its name resolves to, and the connection is made to a checked address, not to the name again (a second
look-up could answer with the worker's own network).
"""

from __future__ import annotations

import asyncio
import html
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import httpx

from budgets.llm.types import ToolSpec
from experiences.tools.base import ToolError, ToolResult
from experiences.tools.threads import threads

MAX_BYTES: Final = 512 * 1024
CONNECT_SECONDS: Final = 5.0
MAX_URL: Final = 2_000
MAX_HOPS: Final = 3  # redirects that are followed
TEXT_TYPES: Final = ("application/json", "application/xml", "application/xhtml+xml", "application/javascript")
USER_AGENT: Final = "AgentCore/1 (fetch tool)"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> its addresses. Raises OSError where there is none."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, by the system's resolver."""
    found = await threads.run("fetch: names", partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def public(address: Address) -> bool:
    """Whether an address is one of the open internet: not private, loopback, link-local, multicast or reserved. Of
    IPv6 only what was given out counts, and nothing that carries an IPv4 address past this check (6to4)."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return public(address.ipv4_mapped)
        if address not in _GIVEN_OUT or address.sixtofour is not None:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


_GIVEN_OUT: Final = ipaddress.ip_network("2000::/3")  # IANA, IPv6 global unicast


@dataclass(frozen=True)
class FetchTool:
    """GET of http and https pages on ``allowed_hosts``: exact names, or "*.example.org" for all below example.org.

    At most ``max_bytes`` are read, within ``timeout`` seconds for everything together. ``resolver`` and ``permitted``
    (may this address be spoken to?) are for tests.

    Raises:
        ValueError: an entry of ``allowed_hosts`` is no host.
    """

    allowed_hosts: tuple[str, ...]
    timeout: float = 15.0
    max_bytes: int = MAX_BYTES
    resolver: Resolver = resolve
    permitted: Callable[[Address], bool] = public

    def __post_init__(self) -> None:
        for host in self.allowed_hosts:
            if not re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", host):
                raise ValueError(f"{host!r} is no host. Write example.org, or *.example.org, in small letters.")

    @property
    def spec(self) -> ToolSpec:
        hosts = ", ".join(self.allowed_hosts) or "none"
        parameters = {
            "type": "object",
            "properties": {"url": {"type": "string", "description": "An http or https address."}},
            "required": ["url"],
            "additionalProperties": False,
        }
        return ToolSpec("fetch", f"Reads a web page as text. Allowed hosts: {hosts}."[:1024], parameters)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        url = arguments.get("url")
        if not isinstance(url, str) or len(url) > MAX_URL:
            return ToolResult(False, "", 'call it with {"url": "https://..."}')
        try:
            async with asyncio.timeout(self.timeout):
                return ToolResult(True, await self._fetched(url))
        except ToolError as error:
            return ToolResult(False, "", str(error))
        except (TimeoutError, httpx.TimeoutException):
            return ToolResult(False, "", f"timeout: no page within {self.timeout:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            return ToolResult(False, "", f"it can't be reached: {str(error) or type(error).__name__}")

    async def _fetched(self, given: str) -> str:
        url = _parsed(given)
        for _ in range(MAX_HOPS + 1):
            found = await self._hop(url)
            if isinstance(found, str):
                return found
            url = found
        raise ToolError(f"it redirects more than {MAX_HOPS} times")

    async def _hop(self, url: httpx.URL) -> str | httpx.URL:
        """The page's text, or where it redirects to. Raises ToolError, httpx.HTTPError, OSError."""
        addresses = await self._addresses(url)
        async with httpx.AsyncClient(verify=_tls(), trust_env=False, follow_redirects=False) as client:
            for address in addresses:
                try:
                    response = await client.send(self._request(url, address), stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if address == addresses[-1]:
                        raise
                    continue  # a name may have IPv6 addresses that can't be reached from here
                try:
                    return await self._read(url, response)
                finally:
                    await response.aclose()
        raise AssertionError("unreachable: there is an address")

    def _request(self, url: httpx.URL, address: str) -> httpx.Request:
        """Connects to the address; the name stays in the Host header and in the check of the certificate."""
        headers = {
            "host": url.netloc.decode("ascii"),
            "user-agent": USER_AGENT,
            "accept": "text/*, application/json;q=0.9, */*;q=0.1",
            "accept-encoding": "identity",
        }
        times = httpx.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout)).as_dict()
        extensions = {"sni_hostname": url.raw_host.decode("ascii"), "timeout": times}
        return httpx.Request("GET", url.copy_with(host=address), headers=headers, extensions=extensions)

    async def _read(self, url: httpx.URL, response: httpx.Response) -> str | httpx.URL:
        if response.status_code in {301, 302, 303, 307, 308} and "location" in response.headers:
            return _parsed(response.headers["location"], url)
        if response.status_code != 200:
            raise ToolError(f"the page answers with HTTP {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(("+json", "+xml"))):
            raise ToolError(f"the page is no text but {kind[:80] or 'of an unknown type'}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise ToolError("the page came compressed, though it was asked not to")  # it could unfold to gigabytes
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) >= self.max_bytes:
                break
        text = _decoded(bytes(body[: self.max_bytes]), response.charset_encoding)
        if kind in {"text/html", "application/xhtml+xml"}:
            text = text_of_html(text)
        return f"{text}\n[cut: only {self.max_bytes:,} bytes were read]" if len(body) >= self.max_bytes else text

    async def _addresses(self, url: httpx.URL) -> list[str]:
        """The checked addresses of the URL's host. Raises ToolError: it is not allowed, or not a public one."""
        host = url.raw_host.decode("ascii").lower().removesuffix(".")
        if not any(_matches(host, pattern) for pattern in self.allowed_hosts):
            raise ToolError(f"the host {host!r} is not allowed; allowed: {', '.join(self.allowed_hosts) or 'none'}")
        try:
            found = await self.resolver(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise ToolError(f"the host {host!r} is not known")
        for text in found:  # one address inside is enough: such a name is not to be trusted
            if "%" in text or not self.permitted(ipaddress.ip_address(text)):
                raise ToolError(f"the host {host!r} is not on the open internet")
        return found


def _parsed(text: str, base: httpx.URL | None = None) -> httpx.URL:
    """Raises ToolError: no http or https address, or one with credentials."""
    try:
        url = base.join(text) if base is not None else httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError):
        raise ToolError("that is no address") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ToolError("the address must begin with http:// or https://")
    if not 0 < (url.port or 80) < 2**16:
        raise ToolError("that is no address")
    if url.userinfo:
        raise ToolError("an address with a name and a password is not fetched")
    return url.copy_with(fragment=None)


def _matches(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _decoded(body: bytes, charset: str | None) -> str:
    named = (charset or "").lower()
    return body.decode(named if _CHARSETS.fullmatch(named) else "utf-8", "replace")


# Those of the web. Python has others too, such as punycode, which takes minutes for such a text.
_CHARSETS: Final = re.compile(
    r"utf-?(8|16|32)(-?[lb]e)?|(us-)?ascii|latin-?1|iso-8859-(1?[1-9]|10|16)|windows-125[0-8]|gb2312|gbk|gb18030|big5"
    r"|euc-(jp|kr)|shift_jis|koi8-[ru]"
)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


_MARK: Final = re.compile(r"<(?:(!--)|[!?]|/?([a-zA-Z][a-zA-Z0-9]*))")
_SILENT: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "noscript", "template", "svg")
}
_INLINE: Final = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "mark", "q", "s", "small", "span", "strong", "sub", "sup", "u"}
)


def text_of_html(page: str) -> str:
    """The title and what stands on the page, a line for each block; no scripts, no styles.

    One pass that never looks back, so that no page takes longer than its length: the standard library's parser has
    cases that are quadratic.
    """
    pieces: list[str] = []
    at = 0
    while (mark := _MARK.search(page, at)) is not None:
        pieces.append(html.unescape(page[at : mark.start()]))
        name = (mark[2] or "").lower()
        if name not in _INLINE:
            pieces.append(" " if name in {"td", "th"} else "\n")
        at = _after(page, mark, name)
    pieces.append(html.unescape(page[at:]))
    lines = (" ".join(line.split()) for line in "".join(pieces).splitlines())
    return "\n".join(line for line in lines if line)


def _after(page: str, mark: re.Match[str], name: str) -> int:
    """Where the text goes on behind a mark: the end of the page for what is never closed."""
    start = mark.end()
    if mark[1]:
        end = page.find("-->", start)
        return len(page) if end < 0 else end + 3
    if name in _SILENT and page[mark.start() + 1] != "/":
        closing = _SILENT[name].search(page, start)
        start = len(page) if closing is None else closing.end()
    end = page.find(">", start)
    return len(page) if end < 0 else end + 1
