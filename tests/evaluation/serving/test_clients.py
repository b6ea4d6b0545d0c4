"""Clients of OpenAI's API before the gateway, each with the same six tasks: the table of ``docs/gateway.md``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from agentcore_site import env
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from tests.evaluation.serving.production import production
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet, eventually

INSTALLED: Final = Path(os.environ.get("SDKS", env.ROOT / ".venv" / "sdks"))
PROGRAMS: Final = Path(__file__).with_name("clients")
VERDICT: Final = {"late": True, "days": 3}
CLIENTS: Final = {
    "`openai` for Python": ("client.py", "openai"),
    "OpenAI Agents SDK": ("client.py", "agents"),
    "`openai` for JavaScript": ("client.mjs", "openai"),
    "AI SDK 7, `@ai-sdk/openai-compatible`": ("client.mjs", "ai-sdk"),
}
TASKS: Final[dict[str, Any]] = {
    "chat": "You said: Hello",
    "stream": "You said: Hello",
    "tools": "You said: 3",
    "structured": VERDICT,
    "limited": [429, True],
    "cancelled": "cancelled",
}

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="a site and the programs of four clients are started"),
    pytest.mark.skipif(
        not (INSTALLED / "node_modules").exists() and not os.environ.get("CI"), reason="clients: .ci/setup sdks"
    ),
]


def brain(messages: list[dict[str, Any]]) -> Any:
    said = messages[-1].get("content")
    if messages[-1]["role"] == "user" and said == "tool":
        function = {"name": "days_late", "arguments": '{"order": 7}'}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    return {"json": json.dumps(VERDICT), "long": "word " * 40_000}.get(said, f"You said: {said}")


def program(kind: str, client: str) -> list[str]:
    if kind.endswith(".mjs"):
        return [shutil.which("node") or "node", str(PROGRAMS / kind), client]
    return [str(INSTALLED / "bin" / "python"), str(PROGRAMS / kind), client]


def test_every_client_has_what_the_documents_say(fleet: Fleet, adam: Any, acme: Any, journal: str) -> None:
    with ModelServer(prices={"small": PRICE}, brain=brain) as server:
        shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
        once: Any = {"scopes": ["gateway:call"], "per_minute": 1}
        limited = [api_key_create(Actor(adam), name=f"limited {n}", **once)[1] for n in range(len(CLIENTS))]
        for key in limited:
            assert shop.ask(headers={"authorization": f"Bearer {key}"}).status_code == 200

        def run(client: tuple[str, str], key: str) -> dict[str, Any]:
            where = {"BASE_URL": shop.base_url, "KEY": shop.key, "LIMITED_KEY": key, "SDKS": str(INSTALLED)}
            environment = {**os.environ, **where, "MODEL": f"agent:{shop.agent.slug}"}
            done = subprocess.run(program(*client), env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr[-2000:]
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(CLIENTS, pool.map(run, CLIENTS.values(), limited), strict=True))
        assert found == dict.fromkeys(CLIENTS, TASKS)
        # A caller that leaves costs what was answered until then, and leaves no hold.
        rows = [row for row in shop.traces(4 + 4 * 6) if row.messages and row.messages[-1].get("content") == "long"]
        assert len(rows) == len(CLIENTS) and all(row.cost_micros > 0 for row in rows)
        eventually(lambda: not server.inside, seconds=20)
    documented = (env.ROOT / "docs" / "gateway.md").read_text()
    for client, results in found.items():
        cells = " | ".join("yes" if results[task] == expected else "no" for task, expected in TASKS.items())
        assert f"| {client} | {cells} |" in documented
