"""Traces that the real SDKs of Python and JavaScript make now, of one small agent each, sent to a real site.

``recorded/`` holds such exports of one day; here the locked versions run (``.ci/setup sdks``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentcore_site import env
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.models import TrajectoryRecord
from tests.support.llm_server import ModelServer
from tests.support.workers import LiveSite, eventually

INSTALLED = env.ROOT / ".venv" / "sdks"
PROGRAMS = Path(__file__).with_name("sdks")
PYTHON = ("langfuse", "langsmith", "logfire", "openai-v2", "openai-v2-spans", "openinference", "openllmetry", "two")
JAVASCRIPT = ("ai-sdk-5", "ai-sdk-6", "ai-sdk-7")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
NEWEST = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
SETTINGS = {
    "openai-v2": {CONTENT: "EVENT_ONLY", **NEWEST},
    "openai-v2-spans": {CONTENT: "SPAN_ONLY", **NEWEST},
    "langsmith": {
        **dict.fromkeys(("LANGSMITH_TRACING", "LANGSMITH_OTEL_ENABLED", "LANGSMITH_OTEL_ONLY"), "true"),
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_ENDPOINT": "http://127.0.0.1:9",
    },
}
WHOLE = [("tool", "weather", {"city": "Bern"}, "sunny"), ("answer", None, {"text": "It is sunny in Bern."}, None)]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="a site and the programs of eleven SDKs are started"),
    pytest.mark.skipif(
        not (INSTALLED / "node_modules").exists() and not os.environ.get("CI"), reason="SDKs: .ci/setup sdks"
    ),
]


def brain(messages: list[dict[str, Any]]) -> Any:
    if messages[-1]["role"] == "tool":
        return "It is sunny in Bern."
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def command(name: str) -> list[str]:
    if name in JAVASCRIPT:
        return [shutil.which("node") or "node", str(PROGRAMS / "agent.mjs"), name[-1]]
    return [str(INSTALLED / "bin" / "python"), str(PROGRAMS / "agent.py"), name]


def seen(row: TrajectoryRecord | None) -> Any:
    """The parts of a trajectory that each SDK has to bring."""
    if row is None:
        return "no trajectory"
    steps = [
        (step["action"]["type"], step["action"]["tool"], step["action"]["parameters"], step["result"]["output"])
        for step in row.steps
    ]
    otlp = row.evidence["otlp"]
    return row.query, row.success, steps, row.tokens, otlp["system"], otlp["settings"].get("temperature")


def test_an_agent_is_seen_whole_whichever_sdk_reports_it_now(
    live_site: LiveSite, acme: Any, adam: Any, olivia: Any
) -> None:
    price_set(Actor(adam), model="small", organization=acme, input_micros=2_000_000, output_micros=8_000_000)
    agents = {name: agent_create(Actor(adam), name=name, slug=name) for name in (*PYTHON, *JAVASCRIPT)}
    _, key = api_key_create(Actor(olivia), name="exporter", scopes=["traces:write"])

    def ran(name: str) -> str:
        """The words of a program that failed; "" of others."""
        given = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "SDKS": str(INSTALLED),
            "OTEL_SERVICE_NAME": name,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"{live_site.url}/api/v1/otlp",
            "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{key}",
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": name,
            **SETTINGS.get(name, {}),
        }
        done = subprocess.run(command(name), env=given, capture_output=True, text=True, timeout=150)
        return done.stderr[-2000:] if done.returncode else ""

    with ModelServer(brain=brain) as server:
        with ThreadPoolExecutor(2) as pool:
            failed = dict(zip(agents, pool.map(ran, agents), strict=True))
        billed = {name: server.accounts["small", name] for name in agents if not failed[name]}
    assert not any(failed.values()), failed

    def rows() -> dict[str, TrajectoryRecord]:
        named = {agent.pk: name for name, agent in agents.items()}
        return {named[row.agent_id]: row for row in TrajectoryRecord.objects.all()}

    eventually(lambda: rows().keys() == agents.keys(), seconds=60, why=f"of {list(agents)} only {list(rows())}")
    found = rows()
    expected = {
        name: (
            *("What is the weather in Bern?", True, WHOLE),
            *(billed[name].prompt_tokens + billed[name].completion_tokens, "You are kind.", 0.5),
        )
        for name in agents
    }
    assert {name: seen(found.get(name)) for name in agents} == expected
