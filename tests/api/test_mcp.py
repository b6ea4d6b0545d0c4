"""The MCP server of the real site, asked by the official client: the same rights, words and limits as JSON-RPC."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from django.db import transaction
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, Status
from agentcore_site.mcp_server import TOOLS
from agentcore_site.middleware import BUSY
from agentcore_site.rest.openrpc import DISCOVER
from agentcore_site.rpc import METHODS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from evaluation.models import EvaluationRun
from experiences.models import Agent
from tests.support.examples import example, ran
from tests.support.rows import lived_run, queued_run
from tests.support.workers import Fleet, LiveSite, eventually
from training.models import TrainingRun

NAMED = "request-of-the-test"
pytestmark = pytest.mark.django_db(transaction=True)


@asynccontextmanager
async def session(site: str, key: str) -> AsyncIterator[ClientSession]:
    async with (
        httpx2.AsyncClient(
            headers={"authorization": f"Bearer {key}", "x-request-id": NAMED}, timeout=60, trust_env=False
        ) as http,
        streamable_http_client(f"{site}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as made,
    ):
        await made.initialize()
        yield made


def asked(site: str, key: str, work: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    async def talk() -> Any:
        async with session(site, key) as made:
            return await work(made)

    return asyncio.run(talk())


def key_of(person: Any, *scopes: str) -> str:
    return api_key_create(Actor(person), name="mcp", scopes=scopes or SCOPES)[1]


@pytest.fixture
def site(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.web()}"


def test_tools_say_what_they_take_and_whether_they_change_anything(site: str, olivia: Any) -> None:
    names = {one.name: one for one in asked(site, key_of(olivia), lambda made: made.list_tools()).tools}
    assert names.keys() == TOOLS.keys()
    assert names["training_get_status"].annotations.read_only_hint
    assert names["training_start_grpo"].input_schema["required"] == ["agent_id"]


@pytest.mark.thorough(reason="a whole run, or a second program")
def test_the_program_of_the_documentation_starts_watches_tests_and_exports(
    live_site: LiveSite, olivia: Any, agent: Agent, tmp_path: Path
) -> None:
    scopes = ("training:view", "training:start", "training:evaluate", "training:export")
    given = {"SITE": live_site.url, "AGENT": agent.slug, "AGENTCORE_KEY": key_of(olivia, *scopes)}
    printed = ran([sys.executable, "-c", example("MCP", "python")], tmp_path, **given)
    run = TrainingRun.objects.select_related("job").get()
    assert (run.job.status, run.iteration) == ("completed", 5) and "95 % interval" in printed
    assert EvaluationRun.objects.filter(checkpoint=run.best_checkpoint).exists()
    assert printed.splitlines()[-1] == f"{run.trajectories} trajectories"
    started = AuditEvent.objects.get(action="run.started")
    assert started.actor == "olivia" and started.door.startswith("key ")


def test_a_call_is_found_in_the_audit_log_by_the_request_that_the_client_named(
    site: str, olivia: Any, agent: Agent
) -> None:
    wanted = {"agent_id": agent.slug}
    answer = asked(site, key_of(olivia), lambda made: made.call_tool("training_start_grpo", wanted))
    assert json.loads(answer.content[0].text) == answer.structured_content
    assert AuditEvent.objects.get(action="run.started").request_id == NAMED


def test_a_tool_is_offered_and_opens_as_far_as_its_caller_may(
    site: str, olivia: Any, stella: Any, charlie: Any, agent: Agent
) -> None:
    run = lived_run(Actor(olivia), agent)
    job = {"job_id": str(run.job_id)}

    async def seen(made: ClientSession) -> tuple[set[str], Any, Any]:
        tools = {one.name for one in (await made.list_tools()).tools}
        return tools, await made.call_tool("training_get_status", job), await made.call_tool("training_pause", job)

    tools, status, paused = asked(site, key_of(stella), seen)
    assert tools == {"training_get_status", "training_list_jobs", "training_cancel"}
    assert not status.is_error and paused.is_error and "may not pause" in paused.content[0].text
    tools, status, paused = asked(site, key_of(olivia, "training:view"), seen)
    assert "training_start_grpo" not in tools and not status.is_error and paused.is_error
    tools, status, paused = asked(site, key_of(charlie), seen)
    assert status.is_error and "no training job" in status.content[0].text.lower() and agent.name not in str(paused)


def test_errors_are_reported_to_the_model(site: str, olivia: Any, agent: Agent) -> None:
    async def work(made: ClientSession) -> list[str]:
        given = [("training_get_status", {"job": "x"}), ("training_start_grpo", {"agent_id": "none"}), ("nothing", {})]
        answers = [await made.call_tool(name, arguments) for name, arguments in given]
        assert all(one.is_error for one in answers)
        return [one.content[0].text for one in answers]

    wrong = asked(site, key_of(olivia), work)
    assert "did you mean job_id?" in wrong[0] and "agent" in wrong[1].lower() and "There is no tool" in wrong[2]


def test_many_callers_at_once_stay_apart(site: str, olivia: Any, charlie: Any, agent: Agent) -> None:
    lived_run(Actor(olivia), agent)

    async def listed(key: str) -> int:
        async with session(site, key) as made:
            found = [await made.call_tool("training_list_jobs", {}) for _ in range(5)]
            [count] = {one.structured_content["total_count"] for one in found}
            return int(count)

    async def work() -> list[int]:
        keys = [key_of_olivia, key_of_charlie] * 4
        return await asyncio.gather(*map(listed, keys))

    key_of_olivia, key_of_charlie = key_of(olivia), key_of(charlie)
    assert asyncio.run(work()) == [1, 0] * 4


def test_strangers_and_other_methods_are_refused_before_anything_is_read(site: str, olivia: Any) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    for headers in ({}, {"authorization": "Bearer ac_nothing"}, {"authorization": "Bearer x"}):
        refused = httpx.post(f"{site}/mcp", json=hello, headers=accept | headers)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer", refused.text
    known = accept | {"authorization": f"Bearer {key_of(olivia)}"}
    for method in ("GET", "DELETE", "PUT"):
        assert httpx.request(method, f"{site}/mcp", headers=known).status_code == 405
    for body in (b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff" * 100, b"[" * 100_000):
        answer = httpx.post(f"{site}/mcp", content=body, headers=known | {"content-type": "application/json"})
        assert 400 <= answer.status_code < 500, (body[:20], answer.status_code, answer.text[:200])
    large = httpx.post(f"{site}/mcp", content=b" " * 5_000_000, headers=known | {"content-type": "application/json"})
    assert large.status_code == 413
    assert httpx.post(f"{site}/mcp/more", json=hello, headers=known).status_code == 404


@pytest.mark.thorough(reason="a site is started")
def test_a_change_that_another_crossed_is_asked_for_again_at_once(olivia: Any, agent: Agent, fleet: Fleet) -> None:
    """The database gives up one of two changes that want the same row: here the one that has waited a while for it."""
    site, key = f"http://127.0.0.1:{fleet.web(PGOPTIONS='-c lock_timeout=500ms')}", key_of(olivia)
    run = queued_run(Actor(olivia), agent)

    async def cancelled(made: ClientSession) -> Any:
        return await made.call_tool("training_cancel", {"job_id": str(run.job_id)})

    with transaction.atomic():
        Job.objects.select_for_update().get(pk=run.job_id)
        busy = asked(site, key, cancelled)
        body = {"jsonrpc": "2.0", "method": "training.cancel", "params": {"job_id": str(run.job_id)}, "id": 1}
        plain = httpx.post(f"{site}/api/v1/jsonrpc", json=body, headers={"authorization": f"Bearer {key}"}, timeout=60)
    assert busy.is_error
    assert busy.content[0].text == f"{BUSY} Look whether the last call was done, then try again."
    assert (plain.status_code, plain.headers["retry-after"]) == (503, "1")
    assert plain.json()["error"]["message"].startswith(BUSY)
    assert Job.objects.get(pk=run.job_id).status == Status.QUEUED
    again = asked(site, key, cancelled)
    assert not again.is_error and Job.objects.get(pk=run.job_id).status == Status.CANCELLED


def test_every_method_of_json_rpc_is_a_tool() -> None:
    assert {*TOOLS.values(), DISCOVER} == set(METHODS)


@pytest.mark.thorough(reason="a process that loses its database")
def test_a_worker_of_requests_that_lost_its_database_says_so(transactional_db: None, olivia: Any, fleet: Fleet) -> None:
    from tests.support.proxy import Proxy
    from tests.support.workers import environment

    key = key_of(olivia)
    with Proxy(environment()["DATABASE_URL"]) as way:
        site = f"http://127.0.0.1:{fleet.web(DATABASE_URL=way.url, DB_POOL='4')}"
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}

        def status() -> int:
            return httpx.post(f"{site}/mcp", json=call, headers=headers, timeout=30).status_code

        assert status() == 200
        way.cut()
        assert status() == 503
        way.heal()
        eventually(lambda: status() == 200, seconds=10, why="it is used again as soon as it is back")
