"""A request of the API as text to copy: for curl, for Python, and for JSON-RPC if it has such a method.

The key is in none of them: they read it from the environment (``AGENTCORE_KEY``).
"""

from __future__ import annotations

import json
import pprint
import shlex
from dataclasses import dataclass
from typing import Any, Final

KEY: Final = "AGENTCORE_KEY"
ENDPOINT: Final = "/api/v1/jsonrpc"


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request. ``path``: with its query. ``body``: JSON; None if there is none. ``rpc``: the equivalent method and
    its parameters, if any. ``output``: the file for the answer; "" for none."""

    method: str
    path: str
    body: Any = None
    rpc: tuple[str, dict[str, Any]] | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class Snippet:
    key: str
    label: str
    text: str


def snippets(call: ApiCall, site: str) -> list[Snippet]:
    """``site``: its address as people outside reach it, without a slash at the end."""
    found = [Snippet("curl", "curl", as_curl(call, site)), Snippet("python", "Python", as_python(call, site))]
    if call.rpc is not None:
        method, params = call.rpc
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        found.append(Snippet("json-rpc", "JSON-RPC", as_curl(ApiCall("POST", ENDPOINT, body), site)))
    return found


def as_curl(call: ApiCall, site: str) -> str:
    """One command for a POSIX shell. Every value is quoted, so that none of it is executed."""
    verb = "" if call.method == "GET" else f"-X {call.method} "
    lines = [f"curl -sS {verb}{shlex.quote(site + call.path)}", f'-H "Authorization: Bearer ${KEY}"']
    if call.body is not None:
        lines.append("-H 'Content-Type: application/json'")
        lines.append(f"-d {shlex.quote(json.dumps(call.body, ensure_ascii=False, indent=2))}")
    if call.output:
        lines.append(f"-o {shlex.quote(call.output)}")
    return " \\\n  ".join(lines)


def as_python(call: ApiCall, site: str) -> str:
    """A script that needs httpx."""
    given = [repr(site + call.path), f'headers={{"Authorization": f"Bearer {{os.environ[{KEY!r}]}}"}}']
    if call.body is not None:
        given.append("json=" + pprint.pformat(call.body, sort_dicts=False, width=90).replace("\n", "\n    "))
    arguments = "".join(f"    {one},\n" for one in [*given, "timeout=60"])
    save = f"open({call.output!r}, 'wb').write(answer.content)" if call.output else "print(answer.json())"
    return (
        f"import os\n\nimport httpx\n\nanswer = httpx.{call.method.lower()}(\n{arguments})\n"
        f"answer.raise_for_status()\n{save}\n"
    )
