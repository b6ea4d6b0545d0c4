"""REST for the services that act: every status code of the contract, and the fast path on real servers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import Job
from agentcore_site.lib.read_cache import ReadCache
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey
from agentcore_site.tenancy.services import api_key_create, api_key_revoke
from experiences.agents.services.agents import agent_archive, agent_update
from experiences.models import Agent, ExecutionTrace, Playbook
from experiences.playbooks.ace.asgi_fast_path import FastContexts
from experiences.playbooks.services.playbooks import playbook_delete, playbook_edit
from tests import factories
from tests.factories import PASSWORD
from tests.support.llm_server import ModelServer
from tests.support.playbooks import (
    PRICE,
    SECTIONS,
    add,
    deployed,
    evolution_failed,
    model_agent,
    playbook_of,
    suggesting,
)
from tests.support.workers import Fleet, eventually

pytestmark = pytest.mark.django_db

SCOPE = "service:internal"


class Service:
    """A program that calls the internal doors."""

    def __init__(self, key: str = "", base: str = "/internal/ace/") -> None:
        self.client, self.base = Client(raise_request_exception=False), base
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        call = getattr(self.client, method)
        extra: dict[str, Any] = {} if method == "get" else {"data": raw, "content_type": "application/json"}
        return call(self.base + path, headers=self.headers | sent, **extra)


def key_of(person: Any, *scopes: str) -> str:
    return api_key_create(Actor(person), name="service", scopes=scopes or [SCOPE])[1]


@pytest.fixture
def service(olivia: Any) -> Service:
    return Service(key_of(olivia))


@pytest.fixture
def playbook(operator: Actor, agent: Agent) -> Playbook:
    return deployed(operator, playbook_of(operator, agent))


def problem(response: Any, status: int) -> str:
    assert response.status_code == status, (response.status_code, response.content)
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status and body["title"]
    return str(body["detail"])


def a_worker_is_there(organization: Any) -> None:
    """A worker holds another job: that is how the site sees it."""
    Job.objects.create(
        organization=organization,
        kind="training",
        status="running",
        worker="w",
        lease_until=timezone.now() + timedelta(minutes=5),
    )


def trace(agent: Agent, **values: Any) -> dict[str, Any]:
    given = {"inputs": {"q": 1}, "outputs": {"a": 2}, "duration_ms": 1234, "success": True}
    return {"agent_id": str(agent.id), "task_id": "task-1"} | given | values


# -- playbooks ---------------------------------------------------------------------------------------------------------


def test_a_reviewed_playbook_can_be_read_once_a_version_is_deployed(
    service: Service, operator: Actor, agent: Agent
) -> None:
    agent_update(operator, agent, ace_release="reviewed")
    body = {"agent_id": str(agent.id), "philosophy": "react", "initial_sections": SECTIONS}
    made = service.send("post", "playbooks", body)
    assert made.status_code == 201, made.content
    assert set(made.json()) == {"playbook_id", "agent_id", "version", "created_at"} and made.json()["version"] == 1
    undeployed = problem(service.send("get", f"playbooks/{agent.id}/context"), 409)
    assert "Create a release of a version of its playbook, and deploy that." in undeployed
    deployed(operator, Playbook.objects.get())
    response = service.send("get", f"playbooks/{agent.id}/context")
    assert response.status_code == 200
    assert response.json() == {
        "agent_id": str(agent.id),
        "context": "## Strategies\n- [s1] Read the whole order before answering a customer.\n\n"
        "## Failures\n- [s2] Refunds above the limit need a ticket number.",
        "version": 1,
        "section_count": 2,
        "context_id": "1",
        "included": ["s1", "s2"],
        "told": ["s1", "s2"],
    }
    assert service.send("get", f"playbooks/{agent.slug}/context").json() == response.json()
    assert "already" in problem(service.send("post", "playbooks", body), 409)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"agent_id": "nobody"},
        {"agent_id": "00000000-0000-0000-0000-000000000000"},
        {"agent_id": "router", "philosophy": "cot"},
        {"agent_id": "router", "philosophy": "stoic"},
        {"agent_id": "router", "initial_sections": [{"category": "jokes", "content": "x"}]},
        {"agent_id": "router", "initial_sections": [{"category": "patterns", "content": "x" * 1001}]},
        {"agent_id": "router", "initial_section": []},
        [],
        b"{",
        b'{"agent_id": "\\u0000"}',
    ],
)
def test_bad_bodies_get_400(service: Service, acme: Any, olivia: Any, body: Any) -> None:
    factories.AgentFactory(organization=acme, slug="router")
    assert problem(service.send("post", "playbooks", body), 400)


def test_the_context_has_a_tag_and_is_not_sent_twice(service: Service, operator: Actor, playbook: Playbook) -> None:
    path = f"playbooks/{playbook.agent_id}/context"
    response = service.send("get", path)
    again = service.send("get", path, If_None_Match=response["ETag"])
    assert again.status_code == 304 and again.content == b"" and again["ETag"] == response["ETag"]
    assert service.send("get", path, If_None_Match=f'"other", W/{response["ETag"]}').status_code == 304
    playbook_edit(operator, playbook, type="remove", target="s1")
    assert service.send("get", path, If_None_Match=response["ETag"]).status_code == 304  # nothing else is deployed
    deployed(operator, playbook)
    changed = service.send("get", path, If_None_Match=response["ETag"])
    assert changed.status_code == 200 and changed.json()["version"] == 2 and changed["ETag"] != response["ETag"]


def test_a_missing_playbook_gets_404(service: Service, agent: Agent) -> None:
    for method, path in (
        ("get", f"playbooks/{agent.id}/context"),
        ("get", f"playbooks/{agent.id}/status"),
        ("get", "playbooks/nobody/context"),
        ("post", f"playbooks/{agent.id}/evolve"),
        ("delete", f"playbooks/{agent.id}"),
        ("get", "playbooks/%00/context"),
    ):
        problem(service.send(method, path), 404)


def test_a_playbook_is_deleted_once(service: Service, playbook: Playbook) -> None:
    assert service.send("delete", f"playbooks/{playbook.agent_id}").status_code == 204
    problem(service.send("delete", f"playbooks/{playbook.agent_id}"), 404)
    assert not Playbook.objects.exists()


def test_the_status_before_anything_happened(service: Service, playbook: Playbook) -> None:
    assert service.send("get", f"playbooks/{playbook.agent_id}/status").json() == {
        "agent_id": str(playbook.agent_id),
        "last_evolution_at": None,
        "evolution_count": 0,
        "success_count": 0,
        "failure_count": 0,
        "total_deltas_generated": 0,
        "total_deltas_applied": 0,
        "average_confidence": 0.0,
        "last_error": None,
    }


def test_service_gets_the_releases_context_and_counts_its_sections(
    service: Service, operator: Actor, agent: Agent
) -> None:
    """A lesson of the agent's is served beside the items, and an item of the same text is not served twice."""
    playbook = playbook_of(operator, agent)
    factories.ExperienceFactory(agent=agent, summary=SECTIONS[1]["content"])
    deployed(operator, playbook)
    Agent.objects.filter(pk=agent.pk).update(leave_out_rate=0.5)
    served = service.send("get", f"playbooks/{agent.id}/context").json()
    assert served["context"].startswith("## Strategies\n- [s1] ") and served["context"].endswith(
        f"- {SECTIONS[1]['content']}"
    )
    assert (served["version"], served["section_count"], served["included"], served["context_id"]) == (
        1,
        1,
        ["s1"],
        "1~0~s2.",
    )
    assert service.send("post", "traces", trace(agent, context_id="1~0~s2.", used=["s1"])).status_code == 201
    stored = ExecutionTrace.objects.get()
    assert (stored.leave_out_rate, stored.left_out) == (0, ["s2"])
    counts = {one.handle: one.helpful for one in playbook.counts.all()}
    assert counts == {"s1": 1, "s2": 0}
    # A release of a playbook that is gone is sent to no service.
    playbook_delete(operator, playbook)
    playbook_of(operator, agent, [{"category": "patterns", "content": "Orders come on Mondays."}])
    assert "no version of its playbook has" in problem(service.send("get", f"playbooks/{agent.id}/context"), 409)


# -- executions --------------------------------------------------------------------------------------------------------


def test_executions_are_recorded_one_and_many(service: Service, playbook: Playbook) -> None:
    one = service.send("post", "traces", trace(playbook.agent, context_version=1))
    assert one.status_code == 201 and set(one.json()) == {"trace_id", "recorded_at"}
    bare = {"agent_id": playbook.agent.slug, "duration_ms": 0.5, "success": False, "task_id": None}
    many = service.send("post", "traces", {"traces": [trace(playbook.agent), bare]})
    assert many.status_code == 201 and len(many.json()["traces"]) == 2
    assert ExecutionTrace.objects.count() == 3 and Playbook.objects.get().traces == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration_ms": 0},
        {"duration_ms": -5},
        {"duration_ms": "long"},
        {"success": None},
        {"agent_id": "nobody"},
        {"inputs": "text"},
        {"inputs": {"x": "y" * 70_000}},
        {"context_version": 9},
        {"recorded_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_bad_executions_get_400_and_none_is_stored(service: Service, playbook: Playbook, wrong: dict[str, Any]) -> None:
    problem(service.send("post", "traces", trace(playbook.agent, **wrong)), 400)
    batch = {"traces": [trace(playbook.agent), trace(playbook.agent, **wrong)]}
    problem(service.send("post", "traces", batch), 400)
    problem(service.send("post", "traces", {"traces": []}), 400)
    assert not ExecutionTrace.objects.exists()


# -- evolution ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: suggesting(add("Mondays are busy.")), prices={"small": PRICE}) as running:
        yield running


def test_an_evolution_is_queued_with_its_place_and_only_once(
    service: Service, operator: Actor, adam: Any, model: ModelServer
) -> None:
    first = playbook_of(operator, model_agent(Actor(adam), model, "First"))
    second = playbook_of(operator, model_agent(Actor(adam), model, "Second"))
    a_worker_is_there(first.organization)
    for place, playbook in enumerate((first, second), start=1):
        answer = service.send("post", f"playbooks/{playbook.agent_id}/evolve")
        assert answer.status_code == 202, answer.content
        body = answer.json()
        assert (body["agent_id"], body["queue_position"]) == (str(playbook.agent_id), place) and body["queued_at"]
    assert "already in progress" in problem(service.send("post", f"playbooks/{first.agent_id}/evolve"), 429)


def test_without_a_worker_or_switched_off_a_service_gets_503(
    service: Service, operator: Actor, adam: Any, model: ModelServer, settings: Any
) -> None:
    playbook = playbook_of(operator, model_agent(Actor(adam), model))
    path = f"playbooks/{playbook.agent_id}/evolve"
    assert "No worker" in problem(service.send("post", path), 503)
    a_worker_is_there(playbook.organization)
    settings.ACE_ENABLED = False
    assert "ACE_ENABLED" in problem(service.send("post", path), 503)
    settings.ACE_ENABLED = True
    assert service.send("post", path).status_code == 202


def test_an_agent_in_training_gets_409(
    service: Service, operator: Actor, adam: Any, model: ModelServer, acme: Any
) -> None:
    playbook = playbook_of(operator, model_agent(Actor(adam), model))
    a_worker_is_there(acme)
    key = f"agent:{playbook.agent_id}"
    Job.objects.create(organization=acme, kind="training", status="queued", exclusive_key=key, title="Train Clerk")
    assert "Train Clerk" in problem(service.send("post", f"playbooks/{playbook.agent_id}/evolve"), 409)


# -- who may -----------------------------------------------------------------------------------------------------------


def calls(agent: Agent) -> list[tuple[str, str, Any]]:
    return [
        ("post", "playbooks", {"agent_id": str(agent.id)}),
        ("get", f"playbooks/{agent.id}/context", None),
        ("get", f"playbooks/{agent.id}/status", None),
        ("post", f"playbooks/{agent.id}/evolve", None),
        ("post", "traces", trace(agent)),
        ("delete", f"playbooks/{agent.id}", None),
    ]


def test_an_unknown_caller_gets_401(playbook: Playbook, olivia: Any) -> None:
    session = Service()
    session.client.force_login(olivia)
    for caller in (Service(), Service("ac_wrong"), Service("not.a.token"), session):
        for method, path, body in calls(playbook.agent):
            problem(caller.send(method, path, body), 401)
    assert Playbook.objects.exists()


def test_keys_and_tokens_without_the_scope_get_403(playbook: Playbook, adam: Any) -> None:
    others = ["training:view", "training:start", "training:manage"]
    token = Client().post("/api/v1/token", {"username": "adam", "password": PASSWORD}, content_type="application/json")
    for caller in (Service(key_of(adam, *others)), Service(token.json()["access"])):
        for method, path, body in calls(playbook.agent):
            assert SCOPE in problem(caller.send(method, path, body), 403)


def test_a_token_with_the_scope_comes_in(playbook: Playbook, olivia: Any) -> None:
    given = {"username": "olivia", "password": PASSWORD, "scope": SCOPE}
    tokens = Client().post("/api/v1/token", given, content_type="application/json").json()
    path = f"playbooks/{playbook.agent_id}/context"
    assert Service(tokens["access"]).send("get", path).status_code == 200
    again = Client().post("/api/v1/token/refresh", {"refresh": tokens["refresh"]}, content_type="application/json")
    assert Service(again.json()["access"]).send("get", path).status_code == 200
    narrow = Service(tokens["access"], "/api/v1/")
    assert narrow.send("post", "agents", {"name": "New"}).status_code == 403
    unknown = {"username": "olivia", "password": PASSWORD, "scope": "everything"}
    assert Client().post("/api/v1/token", unknown, content_type="application/json").status_code == 400


def test_a_role_that_may_not_gets_403(playbook: Playbook, stella: Any) -> None:
    viewer = Service(key_of(stella))
    for method, path, body in calls(playbook.agent):
        response = viewer.send(method, path, body)
        assert response.status_code == (200 if method == "get" else 403), (path, response.content)


def test_strangers_get_404_and_their_bodies_400(playbook: Playbook, charlie: Any) -> None:
    stranger = Service(key_of(charlie))
    for method, path, body in calls(playbook.agent):
        text = problem(stranger.send(method, path, body), 400 if body is not None else 404)
        assert playbook.agent.name not in text
    assert Playbook.objects.exists() and not ExecutionTrace.objects.exists()


# -- the fast path -----------------------------------------------------------------------------------------------------


class Asgi:
    """Calls the fast path in this process; behind it an application only counts its calls."""

    def __init__(self) -> None:
        self.behind = 0
        self.fast = FastContexts(self._behind)

    async def _behind(self, scope: Any, receive: Any, send: Any) -> None:
        self.behind += 1
        await send({"type": "http.response.start", "status": 599, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def get(self, path: str, key: str = "", method: str = "GET", query: bytes = b"", **headers: str) -> Any:
        given = {"host": "localhost:8000"} | headers | ({"authorization": f"Bearer {key}"} if key else {})
        scope = {
            "type": "http",
            "method": method,
            "path": f"/internal/ace/playbooks/{path}",
            "query_string": query,
            "scheme": "http",
            "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in given.items()],
        }
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.fast(scope, None, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.mark.django_db(transaction=True)
async def test_the_fast_path_answers_as_the_slow_one_does(operator: Actor, playbook: Playbook, charlie: Any) -> None:
    key, theirs = await sync_to_async(key_of)(operator.user), await sync_to_async(key_of)(charlie)
    blind = await sync_to_async(key_of)(operator.user, "training:view")
    slow = await sync_to_async(Service(key).send)("get", f"playbooks/{playbook.agent_id}/context")
    asgi, path = Asgi(), f"{playbook.agent_id}/context"
    status, headers, body = await asgi.get(path, key)
    assert (status, body) == (200, slow.content)
    assert headers[b"etag"].decode() == slow["ETag"] and headers[b"content-type"] == b"application/json"
    assert (await asgi.get(path, key, if_none_match=slow["ETag"]))[0] == 304
    assert (await asgi.get(f"{playbook.agent.slug}/context", key))[2] == slow.content
    assert asgi.behind == 0
    for wrong in (
        {"key": theirs}, {"key": blind}, {"key": "ac_wrong"}, {"key": "a.b.c"}, {}, {"key": key, "method": "POST"},
        {"key": key, "query": b"a=1"}, {"key": key, "host": "evil.example"},
    ):  # fmt: skip
        assert (await asgi.get(path, **wrong))[0] == 599, wrong
    for other in ("nobody/context", "%00/context", f"{playbook.agent_id}/status", "a/b/context"):
        assert (await asgi.get(other, key))[0] == 599, other
    await sync_to_async(connections.close_all)()


@pytest.mark.django_db(transaction=True)
async def test_a_token_opens_the_fast_path_and_a_change_is_received(operator: Actor, playbook: Playbook) -> None:
    given = {"username": "olivia", "password": PASSWORD, "scope": SCOPE}
    send = sync_to_async(Client().post)
    token = (await send("/api/v1/token", given, content_type="application/json")).json()["access"]
    asgi, path = Asgi(), f"{playbook.agent_id}/context"
    assert (await asgi.get(path, token))[0] == 200
    while not asgi.fast._listener.listening:
        await asyncio.sleep(0.01)
    await asgi.get(path, token)
    await sync_to_async(playbook_edit)(operator, playbook, type="remove", target="s1")
    await sync_to_async(deployed)(operator, playbook)
    began = time.monotonic()
    while json.loads((await asgi.get(path, token))[2])["version"] != 2:
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < 1.0
    assert asgi.behind == 0
    await sync_to_async(connections.close_all)()


@pytest.mark.django_db(transaction=True)
async def test_without_redis_a_context_is_half_a_second_old_at_most(
    operator: Actor, playbook: Playbook, settings: Any
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    key = await sync_to_async(key_of)(operator.user)
    asgi, path = Asgi(), f"{playbook.agent_id}/context"
    assert json.loads((await asgi.get(path, key))[2])["version"] == 1
    await sync_to_async(playbook_edit)(operator, playbook, type="remove", target="s1")
    await sync_to_async(deployed)(operator, playbook)
    await asyncio.sleep(0.6)
    assert json.loads((await asgi.get(path, key))[2])["version"] == 2 and asgi.behind == 0
    await sync_to_async(connections.close_all)()


@pytest.mark.django_db(transaction=True)
async def test_a_context_that_changes_during_a_read_is_not_cached() -> None:
    memory: ReadCache[str, str] = ReadCache()
    reading = threading.Event()

    def slowly() -> str:
        reading.wait(5)
        return "old"

    first = asyncio.ensure_future(memory.read("a", slowly))
    await asyncio.sleep(0.05)
    memory.forget()
    second = asyncio.ensure_future(memory.read("a", lambda: "new"))
    reading.set()
    assert (await first, await second) == ("old", "new")
    assert memory.fresh("a", 10.0) == "new"


@pytest.mark.django_db(transaction=True)
async def test_a_frequently_requested_context_is_refreshed_behind_the_answers() -> None:
    memory: ReadCache[str, int] = ReadCache()
    reads = 0

    def read() -> int:
        nonlocal reads
        reads += 1
        time.sleep(0.03)
        return reads

    waited = []
    for _ in range(60):
        began = time.monotonic()
        assert await memory.get("a", 0.5, read)
        waited.append(time.monotonic() - began)
        await asyncio.sleep(0.02)
    assert reads >= 3 and sum(1 for one in waited if one > 0.02) <= 2  # the first one, and one for a busy machine


@pytest.mark.alone
@pytest.mark.django_db(transaction=True)
def test_a_change_is_seen_by_every_process_at_once(operator: Actor, playbook: Playbook, fleet: Fleet) -> None:
    """Two real servers; a third process changes the playbook. Neither waits for its memory to run out."""
    ports, path = [fleet.web(), fleet.web()], f"/internal/ace/playbooks/{playbook.agent_id}/context"
    key = key_of(operator.user)
    headers = {"Authorization": f"Bearer {key}"}
    sites = [httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) for port in ports]
    assert [site.get(path).json()["version"] for site in sites] == [1, 1]
    eventually(lambda: all(site.get(path).status_code == 200 for site in sites))
    time.sleep(1.0)  # both listen by now
    for expected in (2, 3, 4):
        [site.get(path) for site in sites]
        content = f"Lesson number {expected} is this one."
        playbook_edit(operator, playbook, type="add", category="learnings", content=content)
        deployed(operator, playbook)
        began = time.monotonic()
        for site in sites:
            eventually(lambda s=site, v=expected: s.get(path).json()["version"] == v, seconds=2, every=0.02)
        assert time.monotonic() - began < 1.0
    playbook_delete(operator, playbook)
    for site in sites:
        eventually(lambda s=site: s.get(path).status_code == 404, seconds=2, every=0.02)
    # A key that is revoked opens nothing a second later, at either of them.
    deployed(operator, playbook_edit(operator, playbook_of(operator, playbook.agent), type="remove", target="s1"))
    for site in sites:
        eventually(lambda s=site: s.get(path).status_code == 200, seconds=2, every=0.02)
    api_key_revoke(operator, ApiKey.objects.get())
    for site in sites:
        eventually(lambda s=site: s.get(path).status_code == 401, seconds=2, every=0.05)
        site.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.thorough(reason="a site is started")
def test_over_the_real_server_an_evolution_changes_the_context(
    operator: Actor, adam: Any, fleet: Fleet, model: ModelServer
) -> None:
    agent = model_agent(Actor(adam), model)
    agent_update(Actor(adam), agent, leave_out_rate=0)  # else one context in ten lacks the very item
    playbook = playbook_of(operator, agent)
    port = fleet.web()
    fleet.worker(TRUSTED_SOURCES="executions")
    headers = {"Authorization": f"Bearer {key_of(operator.user)}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/internal/ace/", headers=headers) as site:
        site.post("traces", json=trace(playbook.agent, context_version=1)).raise_for_status()
        path = f"playbooks/{playbook.agent_id}"
        answer = eventually(
            lambda: r if (r := site.post(f"{path}/evolve")).status_code != 503 else None, seconds=60, every=0.5
        )
        assert answer.status_code == 202, answer.text
        eventually(lambda: site.get(f"{path}/status").json()["success_count"] == 1, seconds=60)
        assert site.get(f"{path}/context").status_code == 409  # learned, and not deployed
        deployed(operator, playbook)
        assert "Mondays are busy." in site.get(f"{path}/context").json()["context"]
    connection.close()


def test_the_context_of_an_archived_agent_is_given_out_no_more(
    service: Service, playbook: Playbook, operator: Actor
) -> None:
    path = f"playbooks/{playbook.agent_id}/context"
    assert service.send("get", path).status_code == 200
    job = evolution_failed(playbook).job
    Job.objects.filter(pk=job.pk).update(status="queued", finished_at=None)
    agent_archive(operator, Agent.objects.get(pk=playbook.agent_id))
    problem(service.send("get", path), 404)
    job.refresh_from_db()
    assert job.status == "cancelled" and Playbook.objects.filter(pk=playbook.pk).exists()
