"""Each role through each door, to its own organisation's rows and as a stranger with that role elsewhere.

One set-up serves all: each request runs in a transaction that is taken back. The counts are printed at the end of a run
(``tests/doors_table.py``); addresses come from the resolver, rights from ``tests/test_doors.py``.

`make test` draws addresses by chance: half of them for an operator, a third for each other role. In `make test-all` all
roles ask for all of them, and so do strangers: `tests/test_doors.py` has walks of theirs that `make test` runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.contrib import admin
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.test import Client
from django.urls import reverse

from agentcore_site.mcp_server import TOOLS, McpServer
from agentcore_site.tenancy.actors import WITH_EXPORT
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import ROLE_MAY, Role
from tests import factories
from tests.doors_table import Counts, as_property
from tests.support.callers import Caller
from tests.support.rounds import one_in, rounds
from tests.support.routes import CONSOLE, of_rest, parameters, routes
from tests.support.sockets import Socket
from tests.test_doors import (
    CONSOLE_WRITES,
    MORE,
    NO_ROW,
    RAW,
    READS,
    REST_WRITES,
    RPC,
    address,
    leaks,
    rows_written,
    run,
    short_pings,
    snapshot,
    thumbs_up,
    values,
)
from training.models import TrainingRun

__all__ = ["run", "short_pings", "values"]  # fixtures
pytestmark = pytest.mark.django_db

REFUSED = {401, 403, 404, 405}
# A page that a member may read answers 200, but for those that need more than their address.
INCOMPLETE = {
    "agents/<uuid:agent_id>/roll-back/": 409,  # there is no release before
    "checkpoints/compare/": 400,  # two are picked by the query
    "evaluations/start/": 404,  # of a run that the query names
    "exports/<uuid:export_id>/download/": 404,  # its file is not written yet
    "exports/stream/": 400,  # rows that the query chooses
    "releases/<uuid:release_id>/tensorzero/": 409,  # of an agent with a model
    "trajectories/compare/": 404,  # two that the query names
}
RIGHTS_ELSEWHERE = {"export"}  # a permission of the person's besides
Ask = Callable[[], Any]


class Walk:
    """The requests of one person, and their outcomes."""

    def __init__(self, counts: Counts, role: str, person: Any, *, stranger: bool) -> None:
        self.counts, self.role, self.stranger, self.before = counts, role, stranger, snapshot()
        self.reads = rounds(role == Role.OPERATOR, True)
        self.part = 4 if role == Role.OPERATOR else 6  # of the addresses, one in so many
        membership = person.memberships.get()
        self.may = ROLE_MAY[membership.role] | (WITH_EXPORT if membership.can_export else frozenset())
        self.may |= {"site"} if person.is_staff else set()

    def ask(
        self,
        door: str,
        right: str,
        send: Ask,
        *,
        row: bool,
        where: Any,
        writes: bool = False,
        form: str = "",
        answer: int = 200,
    ) -> None:
        """One request, taken back. ``row``: whether it names a row of acme's. ``writes``: the table of rights says who
        may, and who may not has changed nothing. ``form``: the right of a page's form, which may be shown to its
        writers alone. ``answer``: the status of a page for a member with both rights."""
        if not (writes or form or self.reads):
            return
        if self.stranger and not row and self.role != Role.ADMIN:
            return  # what names no row shows a stranger of each role their own rows; the admin elsewhere asks for all
        checked = writes and not self.stranger
        written = rows_written() if checked else 0
        with transaction.atomic():
            response = send()
            result = leaks(response)
            away = response.status_code == 302 and response["Location"].startswith(("/sign-in/", "/admin/login/"))
            refused = response.status_code in REFUSED or away
            if checked and refused and rows_written() != written:
                assert snapshot() == self.before, (self.role, where)
            transaction.set_rollback(True)
        if response.status_code == 405:
            return
        assert response.status_code < 500, (self.role, where, response.status_code)
        if self.stranger:
            self.counts[door, right, "stranger asked"] += 1
            self.counts[door, right, "stranger leaks"] += bool(result)
            self.counts[door, right, f"stranger {'refused' if refused else 'nothing'}"] += 1
            assert not result, (self.role, where, result)
            assert refused or not row, (self.role, where, response.status_code)
            return
        self.counts[door, right, f"{self.role} asked"] += 1
        self.counts[door, right, f"{self.role} allowed"] += not refused
        if form:
            assert right in self.may or response.status_code == 403, (self.role, where, "is shown")
            shown = response.status_code == answer
            assert {right, form} - self.may or shown, (self.role, where, response.status_code)
        if writes:
            assert refused is (right not in self.may), (self.role, where, response.status_code, response.content[:300])
            assert door != "REST" or response.status_code in {200, 201, 204, 403, 409}, (self.role, where, response)


def people(acme: Organization, adam: Any, stella: Any, dan: Any, olivia: Any) -> Iterator[tuple[str, Any]]:
    chief = factories.UserFactory(username="chief", is_staff=True)
    factories.MembershipFactory(organization=acme, user=chief, role=Role.ADMIN)
    yield from (("stakeholder", stella), ("developer", dan), ("operator", olivia), ("admin", chief))
    if rounds(False, True):  # tests/console and tests/admin walk as a superuser
        yield "superuser", adam


def strangers(elsewhere: Organization) -> Iterator[tuple[str, Any]]:
    for role in tuple(Role):
        user = factories.UserFactory(username=f"{role}-elsewhere", is_staff=role == Role.ADMIN)
        factories.MembershipFactory(organization=elsewhere, user=user, role=role, can_export=True)
        yield role.value, user


def signed_in(person: Any) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(person)
    return client


def walk_console(walk: Walk, client: Client, values: dict[str, Any]) -> None:
    body = {"run": str(values["job_id"]), "job": str(values["job_id"]), "confirm": "router-7"}
    for route in one_in(walk.part, sorted(CONSOLE)):
        path, row = address(route, values), bool(set(parameters(route)) - NO_ROW)
        reading = READS.get(route, "view")
        form = CONSOLE_WRITES.get(route, reading)
        get: Ask = lambda path=path: client.get(path)  # noqa: E731
        answer = INCOMPLETE.get(route, 200)
        walk.ask("console", reading, get, row=row, where=("get", path), form=form, answer=answer)
        if right := CONSOLE_WRITES.get(route):
            send: Ask = lambda path=path: client.post(path, body)  # noqa: E731
            walk.ask("console", right, send, row=row, where=("post", path), writes=True)


def with_ones_own(caller: Caller, run: TrainingRun, values: dict[str, Any]) -> dict[str, Any]:
    """The values with rows of the caller's own: another's are neither changed nor taken back, in any role."""
    mine = values | {"pk": dict(values["pk"])}
    trajectory = {"trajectory": str(values["trajectory_id"]), "label": "mine"}
    view = {"page": "training:jobs", "name": "My own"}
    for name, body in (("feedback", thumbs_up(values)), ("annotations", trajectory), ("saved-views", view)):
        if (given := caller.post(name, body)).status_code == 201:
            mine["pk"][name] = given.json()["id"]
    if (said := caller.post(f"training-jobs/{run.pk}/comments", {"text": "Mine."})).status_code == 201:
        mine["comment"] = said.json()["id"]
    key = caller.post("api-keys", {"name": "another", "scopes": ["training:view"]})  # to be revoked
    mine["pk"]["api-keys"] = key.json()["id"]
    return mine


def walk_rest(walk: Walk, caller: Caller, values: dict[str, Any]) -> None:
    for route, pattern in one_in(walk.part, [one for one in routes() if of_rest(one[0])]):
        path, plain = address(route, values).removeprefix("/api/v1/"), route.removeprefix("api/v1/")
        row = bool(set(parameters(route)) - NO_ROW)
        for method in [*(getattr(pattern.callback, "actions", None) or {})]:
            if method == "get":
                reading = "data.view" if route in RAW else "view"
                walk.ask("REST", reading, lambda path=path: caller.get(path), row=row, where=(method, path))
            elif (method, plain) in REST_WRITES:
                right, body = REST_WRITES[method, plain]
                sent = body(values) if callable(body) else body
                send: Ask = lambda path=path, method=method, sent=sent: sending(caller, method, path, sent)  # noqa: E731
                walk.ask("REST", right, send, row=row, where=(method, path), writes=True)


def sending(caller: Caller, method: str, path: str, body: Any) -> Any:
    files = {name: SimpleUploadedFile("x.bin", one) for name, one in body.items() if isinstance(one, bytes)}
    if files:
        form = body | files
        return caller.client.post(f"/api/v1/{path}", form, headers=caller.headers)
    return caller.send(method, path, body, {})


class Answered:
    """A result or an error of JSON-RPC as an answer with a status."""

    streaming = False

    def __init__(self, answer: dict[str, Any]) -> None:
        code = answer.get("error", {}).get("code", 200)
        self.status_code = code if code > 0 else 400
        self.content = json.dumps(answer).encode()


def walk_rpc(walk: Walk, caller: Caller, values: dict[str, Any]) -> None:
    for method, (right, params) in RPC.items():
        given = {"job_id": str(values["job_id"]), **MORE.get(method, {})} if params == "job" else params
        send: Ask = lambda method=method, given=given: Answered(caller.rpc(method, given))  # noqa: E731
        walk.ask("JSON-RPC", right, send, row=method != "rpc.discover", where=method, writes=True)


def walk_admin(walk: Walk, client: Client, *, staff: bool) -> None:
    """Each page of each model, with a row of acme's where there is one. A person who is no staff is led away before a
    page is read, so that one of each model shows as much as all."""
    for model in apps.get_models():
        if model not in admin.site._registry:
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        first = model._default_manager.first()
        pages = [(f"{name}_changelist", ()), (f"{name}_add", ())]
        pages += [] if first is None else [(f"{name}_{one}", (first.pk,)) for one in ("change", "delete", "history")]
        for page, args in pages if staff else pages[:1]:
            path = reverse(page, args=args)
            walk.ask("admin", "look", lambda path=path: client.get(path), row=False, where=("get", path))
            if walk.reads and not page.endswith(("changelist", "history")):
                walk.ask("admin", "write", lambda path=path: client.post(path, {}), row=False, where=("post", path))


@pytest.mark.slow(reason="ten people through every door")
@pytest.mark.rounds
def test_every_role_uses_every_interface_and_strangers_find_nothing(
    values: dict[str, Any],
    run: TrainingRun,
    acme: Organization,
    elsewhere: Organization,
    adam: Any,
    stella: Any,
    dan: Any,
    olivia: Any,
    record_property: Callable[[str, object], None],
) -> None:
    counts: Counts = Counter()
    walkers = [(role, one, False) for role, one in people(acme, adam, stella, dan, olivia)]
    walkers += [(role, one, True) for role, one in rounds((), strangers(elsewhere))]
    for role, person, stranger in walkers:
        caller = Caller(person)
        walk = Walk(counts, role, person, stranger=stranger)
        walk_console(walk, signed_in(person), values)
        walk_rpc(walk, caller, values)
        walk_admin(walk, signed_in(person), staff=person.is_staff)
        with transaction.atomic():
            mine = values if stranger else with_ones_own(caller, run, values)
            walk.before = snapshot()
            walk_rest(walk, caller, mine)
            transaction.set_rollback(True)
    record_property(*as_property(counts))
    assert sum(n for (_, _, what), n in counts.items() if what == "stranger leaks") == 0
    assert {door for door, _, _ in counts} == {"console", "REST", "JSON-RPC", "admin"}


@pytest.mark.slow(reason="ten people through sockets and MCP")
@pytest.mark.django_db(transaction=True)
async def test_every_role_opens_its_own_sockets_and_calls_its_own_tools(
    run: TrainingRun,
    acme: Organization,
    elsewhere: Organization,
    adam: Any,
    stella: Any,
    dan: Any,
    olivia: Any,
    record_property: Callable[[str, object], None],
) -> None:
    counts: Counts = Counter()

    def walkers() -> list[tuple[str, Any, bool, dict[str, str]]]:
        own = [(role, one, False, Caller(one).headers) for role, one in people(acme, adam, stella, dan, olivia)]
        return own + [(role, one, True, Caller(one).headers) for role, one in strangers(elsewhere)]

    transport = httpx.ASGITransport(app=McpServer())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        for role, _, stranger, headers in await sync_to_async(walkers)():
            who = "stranger" if stranger else role
            one = Socket(f"/ws/jobs/{run.job_id}/", authorization=headers["Authorization"])
            await one.connect()
            counts["socket", "view", f"{who} asked"] += 1
            if stranger:
                assert await one.closed() == 4404
                counts["socket", "view", "stranger refused"] += 1
            else:
                await one.receive_json()
                await one.disconnect()
                counts["socket", "view", f"{role} allowed"] += 1
            for tool, method in TOOLS.items():
                right, params = RPC[method]
                given = {"job_id": str(run.job_id), **MORE.get(method, {})} if params == "job" else params
                answer = await called(client, headers, tool, given)
                refused = "You may not" in answer or "There is no" in answer or "There is nothing" in answer
                counts["MCP", right, f"{who} asked"] += 1
                may = ROLE_MAY[Role.ADMIN if role == "superuser" else Role(role)] | RIGHTS_ELSEWHERE
                if stranger:
                    assert refused and "Zanzibar" not in answer, (role, tool, answer)
                    counts["MCP", right, "stranger refused"] += 1
                else:
                    counts["MCP", right, f"{role} allowed"] += not refused
                    assert refused or right in may, (role, tool, answer)
    record_property(*as_property(counts))


async def called(client: httpx.AsyncClient, headers: dict[str, str], tool: str, given: dict[str, Any]) -> str:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": given}}
    accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    response = await client.post("/mcp", json=request, headers=headers | accept)
    assert response.status_code == 200, (response.status_code, response.text)
    return response.text
