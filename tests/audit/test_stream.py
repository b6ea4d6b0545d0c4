"""The audit log at a webhook: every line, once by its batch's id, in order, also when a process dies on the way."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from django.core import mail
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook

from agentcore_site.audit.export_lines import copy_compare
from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.sealing import seal, tables
from agentcore_site.audit.services import record
from agentcore_site.audit_export import sending
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.audit_export.sending import stream_secret
from agentcore_site.audit_export.services import stream_pause, stream_restart, stream_set
from agentcore_site.audit_export.tasks import audit_send
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Organization
from tests.support.pages import html
from tests.support.respawning import respawning
from tests.support.rounds import rounds
from tests.support.workers import environment, eventually

pytestmark = pytest.mark.django_db(transaction=True)
LOG = tables["audit log"]
SENDER = "from agentcore_site.audit_export.sending import streams_send"


class Siem(ThreadingHTTPServer):
    """A server of logs. ``moods`` are drawn from for each request: "taken"; "refused"; "lost", taken though the answer
    says 500; "cut", taken and no answer; "slow"."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.moods = ["taken"]
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/log"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a sender that was killed

    def bodies(self) -> dict[str, Any]:
        """The batches that were taken, by id, in the order of their first arrival. A batch is the same at each try."""
        values: dict[str, Any] = {}
        for headers, body in self.came:
            data = json.loads(body)["data"]
            assert values.setdefault(headers["webhook-id"], data) == data and data["batch"] == headers["webhook-id"]
        return values

    def lines(self) -> list[Any]:
        return [line for one in self.bodies().values() for line in one["lines"]]

    def numbers(self) -> list[int]:
        return [line["number"] for line in self.lines()]


class _Handler(BaseHTTPRequestHandler):
    server: Siem

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mood = random.choice(self.server.moods)
        if mood == "slow":
            time.sleep(0.2)
        if mood != "refused":
            self.server.came.append(({name.lower(): value for name, value in self.headers.items()}, body))
        if mood == "cut":
            return
        self.send_response(200 if mood in ("taken", "slow") else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def siem() -> Iterator[Siem]:
    with Siem() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def lines(organization: Organization, n: int) -> list[int]:
    made = [record(None, "test.line", organization=organization, after={"n": one}) for one in range(n)]
    result = dict(AuditEvent.objects.filter(pk__in=[one.pk for one in made]).values_list("pk", "number"))
    return [result[one.pk] for one in made]


@contextmanager
def late_line(organization: Organization) -> Iterator[psycopg.Connection[Any]]:
    """A line that another session wrote, and commits on request; later ones were sealed and sent meanwhile."""
    with psycopg.connect(environment()["DATABASE_URL"]) as late:
        late.execute("SET agentcore.scope = '*'")
        late.execute(
            "INSERT INTO audit_auditevent (id, at, organization_id, actor, door, ip, action, target_type, target_id,"
            " target) VALUES (gen_random_uuid(), now(), %s, 'late', '', '', 'test.late', '', '', '')",
            [organization.pk],
        )
        lines(organization, 2)
        seal(LOG)
        assert audit_send() == 3
        yield late


def due_now(**also: Any) -> None:
    """As if the time of the next try had come."""
    AuditStream.objects.update(try_after=timezone.now() - timedelta(seconds=1), **also)


def written(organization: Organization) -> int:
    return AuditEvent.objects.filter(organization_id=organization.pk).count()


def in_order(organization: Organization) -> list[int]:
    """The numbers of an organisation's sealed lines, by their seals."""
    own = set(AuditEvent.objects.filter(organization_id=organization.pk).values_list("number", flat=True))
    with connection.cursor() as cursor:
        cursor.execute("SELECT members FROM audit_seal WHERE kind = %s ORDER BY id", [LOG.name])
        blocks = [one for (members,) in cursor.fetchall() for one in members]
    return [number for one in blocks for number in range(one.lower, one.upper) if number in own]


def test_sealed_lines_are_sent_once_signed_and_a_copy_of_them_verifies(
    adam: Any, acme: Organization, elsewhere: Organization, siem: Siem
) -> None:
    sent = lines(acme, 3)
    lines(elsewhere, 2)
    stream_set(adam, acme, url=siem.url)
    assert audit_send() == 0 and siem.came == []  # nothing is sealed yet
    seal(LOG)
    assert audit_send() == 4 and audit_send() == 0  # and the line that says where they go
    assert siem.numbers()[:3] == sent and {line["action"] for line in siem.lines()} == {"test.line", "audit_stream.set"}
    [(headers, body)] = siem.came
    verified = Webhook(stream_secret(acme.pk, 1)).verify(body, headers)
    assert (verified["type"], verified["data"]["organization"]) == ("audit.lines", "acme")
    copy = [json.dumps(line).encode() for line in siem.lines()]
    assert (copy_compare(copy).unsealed, copy_compare(copy).wrong) == (0, [])
    row = AuditStream.objects.get()
    assert (row.sent_lines, row.batch_id, row.error) == (4, None, "") and row.sent_at


def test_a_line_whose_transaction_ends_late_is_not_skipped(adam: Any, acme: Organization, siem: Siem) -> None:
    stream_set(adam, acme, url=siem.url)
    with late_line(acme) as late:
        late.commit()
    assert audit_send() == 0 and seal(LOG) == 1 and audit_send() == 1
    assert siem.lines()[-1]["action"] == "test.late" and siem.numbers() == in_order(acme) != sorted(siem.numbers())


def test_many_lines_go_in_batches_and_seals_without_a_line_of_ours_are_passed_over(
    adam: Any, acme: Organization, elsewhere: Organization, siem: Siem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SEALS_AT_ONCE", 2)
    monkeypatch.setattr(sending, "NEXT", sending.NEXT.replace("LIMIT 2000", "LIMIT 2"))
    with transaction.atomic():
        sent = lines(acme, 1_100)
    seal(LOG)
    for _ in range(5):
        lines(elsewhere, 1)
        seal(LOG)
    sent += lines(acme, 1)
    stream_set(adam, acme, url=siem.url)
    seal(LOG)
    assert audit_send() == 1_102 and siem.numbers()[:-1] == sent
    assert [len(one["lines"]) for one in siem.bodies().values()] == [500, 500, 100, 2]
    long = {"text": "x" * 300_000}
    for _ in range(3):
        record(None, "test.long", organization=acme, after=long)
    seal(LOG)
    assert audit_send() == 3 and [len(one["lines"]) for one in siem.bodies().values()][4:] == [1, 1, 1]


def test_a_seal_that_shows_up_while_others_are_passed_over_is_not_passed_over_with_them(
    adam: Any, acme: Organization, elsewhere: Organization, siem: Siem, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_set(adam, acme, url=siem.url)
    with late_line(acme) as late:
        lines(elsewhere, 1)
        seal(LOG)
        checked = sending._lines

        def check(stream: AuditStream) -> list[tuple[int, int, int]]:
            result = checked(stream)
            late.commit()
            seal(LOG)
            return result

        monkeypatch.setattr(sending, "_lines", check)
        audit_send()
    monkeypatch.undo()
    audit_send()
    assert siem.lines()[-1]["action"] == "test.late" and siem.numbers() == in_order(acme)


def test_a_failed_batch_is_tried_again_by_the_same_id_with_growing_delays_and_admins_are_notified_once(
    adam: Any, acme: Organization, siem: Siem
) -> None:
    stream_set(adam, acme, url=siem.url)
    seal(LOG)
    siem.moods = ["lost"]
    waits = []
    for n in range(12):
        assert audit_send() == 0
        row = AuditStream.objects.get()
        assert (row.tries, row.error) == (n + 1, "It answered 500.") and row.failing_since
        waits.append(round((row.try_after - timezone.now()).total_seconds()))
        assert audit_send() == 0 and len(siem.came) == n + 1  # not before its time
        due_now()
    assert waits[:6] == [1, 2, 4, 8, 16, 32] and waits[-1] == 300
    assert mails_send() == 0
    due_now(failing_since=timezone.now() - timedelta(minutes=61))
    audit_send()
    due_now()
    audit_send()
    assert mails_send() == 1 and "not been taken" in mail.outbox[0].body and mail.outbox[0].bcc == ["adam@example.com"]
    assert AuditEvent.objects.filter(action="audit_stream.stuck").count() == 1
    siem.moods = ["taken"]
    due_now()
    assert audit_send() == 1 and len(siem.bodies()) == 1
    row = AuditStream.objects.get()
    assert (row.tries, row.error, row.failing_since, row.told_at) == (0, "", None, None)


def test_a_person_pauses_a_stream_and_restarts_the_stream_from_the_beginning_or_from_now_on(
    adam: Any, acme: Organization, siem: Siem
) -> None:
    lines(acme, 2)
    seal(LOG)
    row = stream_set(adam, acme, url=siem.url, beginning=False)
    seal(LOG)
    assert audit_send() == 1  # the line of that change
    stream_pause(adam, row, paused=True)
    seal(LOG)
    assert audit_send() == 0
    stream_pause(adam, row, paused=False)
    seal(LOG)
    assert audit_send() == 2 and len(siem.numbers()) == 3
    stream_restart(adam, row, beginning=True)
    before = len(siem.numbers())
    assert audit_send() == 5 and siem.numbers()[before:] == in_order(acme)
    with pytest.raises(Invalid, match="never called"):
        stream_set(adam, acme, url="http://169.254.169.254/")


def test_the_page_shows_the_secret_once_and_how_far_the_stream_is(adam: Any, acme: Organization, siem: Siem) -> None:
    console, page = Client(), "/audit/webhook/"
    console.force_login(adam)
    assert "Start from" not in html(console.get(page))
    made = console.post(page, {"url": siem.url, "beginning": "on"})
    assert stream_secret(acme.pk, 1) in html(made) and "no-store" in made["Cache-Control"]
    shown = html(console.get(page))
    assert stream_secret(acme.pk, 1) not in shown and f"0 lines were delivered. {written(acme)} wait." in shown
    assert "The webhook accepted the test." in html(console.post(f"{page}test/", follow=True))
    assert json.loads(siem.came[0][1])["type"] == "audit.test"
    siem.moods = ["refused"]
    assert "did not take the test: It answered 500." in html(console.post(f"{page}test/", follow=True))
    seal(LOG)
    audit_send()
    assert "It answered 500." in html(console.get(page))
    siem.moods = ["taken"]
    assert "paused" in html(console.post(f"{page}pause/", follow=True))
    console.post(f"{page}resume/")
    seal(LOG)
    audit_send()
    waiting = html(console.get(page))
    assert f"{written(acme)} lines were delivered" in waiting and "0 wait." in waiting
    assert stream_secret(acme.pk, 2) in html(console.post(f"{page}secret/"))
    assert console.post(page, {"url": "ftp://nope"}).status_code == 400
    console.post(f"{page}remove/")
    assert not AuditStream.objects.exists()
    assert console.post(f"{page}test/").status_code == 404


@pytest.mark.thorough(reason="senders are killed")
def test_nothing_is_lost_or_doubled_though_senders_are_killed_and_the_receiver_fails(
    adam: Any, acme: Organization, elsewhere: Organization, siem: Siem
) -> None:
    stream_set(adam, acme, url=siem.url)
    siem.moods = ["taken"] * 4 + ["refused", "lost", "cut", "slow"]

    over = threading.Event()

    def write(seed: int) -> None:
        draw = random.Random(seed)
        while not over.is_set():
            with transaction.atomic():
                lines(acme, draw.randint(1, 4))
                lines(elsewhere, 1)
                time.sleep(draw.random() / 20)  # so that transactions end in another order than they began
        connection.close()

    writers = [threading.Thread(target=write, args=[seed]) for seed in range(3)]
    with respawning(SENDER, "streams_send()") as sender:
        try:
            for one in writers:
                one.start()
            kills, ends = 0, time.monotonic() + 60
            while kills < rounds(5, 12) or (len(siem.bodies()) < 12 and time.monotonic() < ends):
                for _ in range(random.randint(1, 5)):
                    seal(LOG)
                    due_now()
                    time.sleep(random.random() / 5)
                sender.kill()
                kills += 1
                due_now()  # its lease is over
        finally:
            over.set()
            for one in writers:
                one.join()
        siem.moods = ["taken"]
        seal(LOG)
        due_now()
        everything = in_order(acme)
        eventually(lambda: len(siem.numbers()) >= len(everything), seconds=60, why="all lines")
    assert siem.numbers() == everything and len(set(everything)) == len(everything) == written(acme)
    assert len(siem.came) > len(siem.bodies()) >= 12  # some came twice, as the same batch
