"""The audit log leaves as JSONL: what the page shows, for those who may, with seals by which a copy is checked."""

from __future__ import annotations

import json
import tracemalloc
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from agentcore_site.audit.export_lines import copy_compare
from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.sealing import seal, tables, verify
from agentcore_site.audit.services import event_erase, record
from agentcore_site.audit_export.exports import audit_export_start, audit_jsonl
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from tests.support.callers import Caller, body_of, pages
from tests.support.erasures import erasure_of
from tests.support.pages import html

pytestmark = pytest.mark.django_db
LOG = tables["audit log"]
WORDS = {"said": 'ünï\n"quoted"', "sum": 0.1, "many": 12345678901234567890123, "none": None, "whole": 1.0}


def exported(actor: Actor, **filters: Any) -> list[bytes]:
    export = audit_export_start(actor, filters)

    async def read() -> list[bytes]:
        return [piece async for piece in audit_jsonl(export)]

    return b"".join(async_to_sync(read)()).splitlines(keepends=True)


def events(organization: Organization, n: int, action: str = "test.line", **after: Any) -> list[AuditEvent]:
    return [record(None, action, organization=organization, after={"n": one} | after) for one in range(n)]


def test_a_line_says_what_the_page_shows_with_its_digest_and_its_seal(adam: Any, acme: Organization) -> None:
    sealed = record(
        Actor(adam, ip="192.0.2.7", interface="console"), "test.first", acme, organization=acme, after=WORDS
    )
    seal(LOG)
    head = verify(LOG).head
    record(None, "test.later", organization=acme)
    first, later = map(json.loads, exported(Actor(adam)))
    assert first["id"] == str(sealed.pk) and first["at"] == sealed.at.isoformat().replace("+00:00", "Z")
    assert {"actor": "adam", "ip": "192.0.2.7", "door": "console", "target": "Acme Research"}.items() <= first.items()
    assert (first["before"], first["after"]) == (None, WORDS)
    assert first["seal_digest"] == head and len(first["digest"]) == 64
    assert (later["seal"], later["seal_digest"]) == (None, None)


def test_an_export_is_logged_and_holds_only_organisations_that_the_actor_administers(
    adam: Any, olivia: Any, acme: Organization, elsewhere: Organization
) -> None:
    events(acme, 3, secret="ours")
    events(elsewhere, 2, secret="theirs")
    record(None, "sign_in.failed")  # of no organisation
    assert len(exported(Actor(adam), about="run")) == 0
    lines = exported(Actor(adam), action="test.line", until="2100-01-01T00:00:00Z")
    assert len(lines) == 3 and b"theirs" not in b"".join(lines)
    logged = AuditEvent.objects.filter(action="audit.exported", organization_id=acme.pk).order_by("number")
    filters = {"action": "test.line", "until": "2100-01-01T00:00:00Z"}
    assert [one.after for one in logged] == [
        {"filters": {"about": "run"}, "lines": 0},
        {"filters": filters, "lines": 3},
    ]
    assert {one.actor for one in logged} == {"adam"}
    with pytest.raises(Forbidden):
        exported(Actor(olivia))
    with pytest.raises(Invalid, match="since"):
        exported(Actor(adam), since="yesterday")


def test_page_and_rest_give_the_same_lines_and_the_list_pages_through_them(adam: Any, acme: Organization) -> None:
    events(acme, 60)
    record(None, "dataset.archived", organization=acme)
    caller = Caller(adam)
    answer = caller.get("audit-events/export", action="test.line")
    assert answer["Content-Type"] == "application/x-ndjson" and "audit-log.jsonl" in answer["Content-Disposition"]
    ids = [json.loads(line)["id"] for line in body_of(answer).splitlines()]
    listed = [one["id"] for page in pages(caller, "audit-events", action="test.line") for one in page]
    assert len(ids) == 60 and ids == listed[::-1]
    assert caller.get("audit-events/export", sinc="x").status_code == 400
    assert caller.get("audit-events/export", site="perhaps").status_code == 400
    console = Client()
    console.force_login(adam)
    assert 'href="/audit/export/?about=dataset"' in html(console.get("/audit/?about=dataset"))
    [line] = body_of(console.get("/audit/export/?about=dataset")).splitlines()
    assert json.loads(line)["action"] == "dataset.archived"


def test_a_superuser_takes_the_whole_sites_log_and_no_key_does(adam: Any, elsewhere: Organization) -> None:
    record(None, "sign_in.failed")
    events(elsewhere, 1)
    export = audit_export_start(Actor(adam), {}, site=True)
    assert set(export.rows.values_list("action", flat=True)) >= {"sign_in.failed", "test.line"}
    logged = AuditEvent.objects.filter(action="audit.exported")
    assert {one.organization_id for one in logged} >= {None, elsewhere.pk}  # each whose lines were taken reads of it
    assert Caller(adam).get("audit-events/export", site="true").status_code == 403
    get_user_model().objects.filter(pk=adam.pk).update(is_superuser=False)
    adam.refresh_from_db()
    with pytest.raises(Forbidden, match="superusers"):
        audit_export_start(Actor(adam), {}, site=True)


def test_a_copy_is_checked_against_the_seals_line_by_line(adam: Any, acme: Organization, tmp_path: Path) -> None:
    made = [record(None, "test.line", organization=acme, after=WORDS | {"n": n}) for n in range(5)]
    seal(LOG)
    events(acme, 2)
    copy = exported(Actor(adam))
    assert seal(LOG) and [json.loads(line)["seal"] is None for line in copy] == [False] * 5 + [True] * 2
    result = copy_compare(copy)
    assert (result.lines, result.unsealed, result.wrong) == (7, 0, [])  # also those that were sealed later
    forged = [line.replace(b'"n": 3', b'"n": 4') for line in copy]
    third = AuditEvent.objects.values_list("number", flat=True).get(pk=made[3].pk)
    assert copy_compare(forged).wrong == [f"line {third} of the copy is not what was sealed"]
    with erasure_of(acme) as ordered:
        event_erase(made[0].pk, ordered, [WORDS["said"]])
    assert copy_compare([*copy, *exported(Actor(adam))]).wrong == []  # as it was, and as it is
    file = tmp_path / "copy.jsonl"
    file.write_bytes(b"".join(forged))
    with pytest.raises(SystemExit):
        call_command("audit_verify", copy=file, stdout=(out := StringIO()), stderr=StringIO())
    assert f"line {third} of the copy" in out.getvalue()
    file.write_text('{"number": 1}\n')
    with pytest.raises(CommandError, match="Line 1 of the file"):
        call_command("audit_verify", copy=file, stdout=StringIO())


def test_a_large_log_leaves_in_constant_memory(adam: Any, acme: Organization) -> None:
    async def read() -> tuple[int, int]:
        size = n = 0
        async for piece in audit_jsonl(export):
            size, n = size + len(piece), n + piece.count(b"\n")
        return size, n

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_auditevent (id, at, organization_id, actor, door, ip, action, target_type, target_id,"
            " target, after) SELECT gen_random_uuid(), now(), %s, 'system', '', '', 'test.many', '', '', '',"
            " jsonb_build_object('n', n, 'text', repeat('x', 500)) FROM generate_series(1, 20000) n",
            [acme.pk],
        )
    while seal(LOG):
        pass
    export = audit_export_start(Actor(adam), {"action": "test.many"})
    tracemalloc.start()
    size, n = async_to_sync(read)()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n == 20_000 and size > 20_000_000
    assert peak < 8_000_000, peak  # a batch of 1,000 lines, some copies of it, and no more
