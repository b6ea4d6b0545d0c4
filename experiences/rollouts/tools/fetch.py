"""The ``fetch`` tool: reads a page of the web as text. Off unless the site lists the hosts that may be read.

An address that a model gives is untrusted: the host is checked against the list, then called like every other
address that was entered (``agentcore_site.outbound``). A redirect is not followed; the model receives its target.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message as Header
from typing import Any, Final

from agentcore_site.outbound import AddressRefused, OutboundClient, OutboundError, Redirected, Response, parsed
from agentcore_site.outbound.addresses import HOST, host_matches
from agentcore_site.outbound.policy import host_of
from budgets.llm.types import ToolSpec
from experiences.rollouts.tools.base import ToolError, ToolResult

MAX_BYTES: Final = 512 * 1024
CONNECT_SECONDS: Final = 5.0
MAX_URL: Final = 2_000
TEXT_TYPES: Final = ("application/json", "application/xml", "application/xhtml+xml", "application/javascript")
HEADERS: Final = {
    "user-agent": "AgentCore/1 (fetch tool)",
    "accept": "text/*, application/json;q=0.9, */*;q=0.1",
}


@dataclass(frozen=True)
class FetchTool:
    """GET of http and https pages on ``allowed_hosts``: exact names, or "*.example.org" for all below example.org.

    At most ``max_bytes`` are read, within ``timeout`` seconds for everything together.

    Raises:
        ValueError: an entry of ``allowed_hosts`` is no host.
    """

    allowed_hosts: tuple[str, ...]
    timeout: float = 15.0
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        for host in self.allowed_hosts:
            if not HOST.fullmatch(host):
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
        except TimeoutError:
            return ToolResult(False, "", f"timeout: no page within {self.timeout:g} s")
        except Redirected as error:
            where = error.location[:MAX_URL] if error.location.isprintable() else ""
            return ToolResult(False, "", f"the page redirects to {where or 'nowhere'}: fetch that address instead")
        except AddressRefused as error:
            return ToolResult(False, "", str(error))
        except OutboundError as error:
            return ToolResult(False, "", f"it can't be reached: {error}")

    async def _fetched(self, given: str) -> str:
        """Raises ToolError, OutboundError."""
        url = parsed(given).with_fragment(None)
        host = host_of(url)
        if not any(host_matches(host, pattern) for pattern in self.allowed_hosts):
            raise ToolError(f"the host {host!r} is not allowed; allowed: {', '.join(self.allowed_hosts) or 'none'}")
        async with (
            OutboundClient(connect_s=min(CONNECT_SECONDS, self.timeout)) as client,
            await client.send("GET", client.target(str(url)), headers=HEADERS) as response,
        ):
            return await self._read(response)

    async def _read(self, response: Response) -> str:
        """Raises ToolError, OutboundError."""
        if response.status != 200:
            raise ToolError(f"the page answers with HTTP {response.status}")
        header = Header()
        header["content-type"] = response.headers.get("content-type", "")
        kind = header.get_content_type() if header["content-type"] else ""
        if not (kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(("+json", "+xml"))):
            raise ToolError(f"the page is no text but {kind[:80] or 'of an unknown type'}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise ToolError("the page came compressed, though it was asked not to")  # it could unfold to gigabytes
        body = await response.read(self.max_bytes - 1)
        text = _decoded(body, header.get_content_charset())
        if kind in {"text/html", "application/xhtml+xml"}:
            text = text_of_html(text)
        return f"{text}\n[cut: only {self.max_bytes:,} bytes were read]" if len(body) >= self.max_bytes else text


def _decoded(body: bytes, charset: str | None) -> str:
    named = (charset or "").lower()
    return body.decode(named if _CHARSETS.fullmatch(named) else "utf-8", "replace")


# Those of the web. Python has others too, such as punycode, which takes minutes for such a text.
_CHARSETS: Final = re.compile(
    r"utf-?(8|16|32)(-?[lb]e)?|(us-)?ascii|latin-?1|iso-8859-(1?[1-9]|10|16)|windows-125[0-8]|gb2312|gbk|gb18030|big5"
    r"|euc-(jp|kr)|shift_jis|koi8-[ru]"
)


_MARK: Final = re.compile(r"<(?:(!--)|[!?]|/?([a-zA-Z][a-zA-Z0-9]*))")
_SILENT: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "noscript", "template", "svg")
}
_INLINE: Final = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "mark", "q", "s", "small", "span", "strong", "sub", "sup", "u"}
)


def text_of_html(page: str) -> str:
    """The title and the text of the page, a line for each block; no scripts, no styles.

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
    """End of a mark: the end of the page for a mark that is never closed."""
    start = mark.end()
    if mark[1]:
        end = page.find("-->", start)
        return len(page) if end < 0 else end + 3
    if name in _SILENT and page[mark.start() + 1] != "/":
        closing = _SILENT[name].search(page, start)
        start = len(page) if closing is None else closing.end()
    end = page.find(">", start)
    return len(page) if end < 0 else end + 1
