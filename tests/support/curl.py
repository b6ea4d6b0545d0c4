"""Commands of curl that a page or a document shows: read as a shell reads them, and sent as curl would."""

from __future__ import annotations

import html
import re
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

KEY = "$AGENTCORE_KEY"


@dataclass(frozen=True)
class Command:
    method: str
    url: str
    headers: dict[str, str]
    body: str | None


def shown(page: str, id: str) -> str:
    """The text of the element with that id, as a person copies it."""
    [text] = re.findall(rf'<pre[^>]* id="{re.escape(id)}"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return html.unescape(text)


def command(text: str) -> Command:
    """Reads one command. Raises where it has an option that none of ours have."""
    words = iter(shlex.split(text.replace(" \\\n", " ")))  # a shell joins such lines, shlex does not
    assert next(words) == "curl"
    method, url, headers, body = "", "", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        elif word == "-o":
            next(words)
        elif not word.startswith("-"):
            assert not url, text
            url = word
        else:
            assert word == "-sS", word
    return Command(method or ("POST" if body is not None else "GET"), url, headers, body)


def sent(client: Any, text: str, key: str) -> Any:
    """The answer of Django's test client to a command whose key is ``key``."""
    result = command(text)
    assert result.headers["Authorization"] == f"Bearer {KEY}"
    parts = urlsplit(result.url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    given = result.headers | {"Authorization": f"Bearer {key}"}
    data = b"" if result.body is None else result.body.encode()
    return client.generic(result.method, path, data, given.pop("Content-Type", ""), headers=given)
