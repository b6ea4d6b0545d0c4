"""Seals over the audit log and the ledger: what was altered, taken away or added is found, and named."""

from __future__ import annotations

import threading
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from agentcore_site.audit.models import AuditEvent, ErasedWords, Seal
from agentcore_site.audit.sealing import seal, tables, verify
from agentcore_site.audit.services import event_erase, record
from agentcore_site.audit.tasks import seal_all
from agentcore_site.tenancy.models import Organization
from tests.performance.scale import copied
from tests.support.erasures import erasure_of
from tests.support.owner import as_owner
from tests.support.plans import blocks_read
from tests.support.workers import environment

pytestmark = pytest.mark.django_db(transaction=True)
LOG = tables["audit log"]


def lines(n: int) -> list[AuditEvent]:
    return [record(None, "test.line", after={"n": number}) for number in range(n)]


def tampered(statement: str, *values: Any) -> None:
    """As one who has the owner's password, and may switch triggers off."""
    with as_owner(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, values)


def number_of(event: AuditEvent) -> int:
    return AuditEvent.objects.values_list("number", flat=True).get(pk=event.pk)


def test_sealed_lines_verify_and_later_lines_wait_for_the_next_seal(db: None) -> None:
    lines(3)
    assert seal(LOG) == 3 and seal(LOG) == 0
    lines(2)
    result = verify(LOG)
    assert (result.lines, result.seals, result.unsealed, result.wrong) == (3, 1, 2, [])
    assert seal(LOG) == 2
    again = verify(LOG, head=result.head)
    assert (again.lines, again.seals, again.unsealed, again.wrong) == (5, 2, 0, [])


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE audit_auditevent SET actor = 'another' WHERE id = %s", "line {line} was altered"),
        ("UPDATE audit_auditevent SET after = '{{}}' WHERE id = %s".replace("{{}}", "{}"), "line {line} was altered"),
        ("DELETE FROM audit_auditevent WHERE id = %s", "line {line} is missing"),
    ],
)
def test_the_line_is_named_that_was_altered_or_taken_away(statement: str, said: str) -> None:
    events = lines(5)
    seal(LOG)
    line = number_of(events[2])
    tampered(statement, events[2].pk)
    assert verify(LOG).wrong == [said.format(line=line)]
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("audit_verify", stdout=out, stderr=StringIO())
    assert said.format(line=line) in out.getvalue()


def test_a_recomputed_chain_does_not_have_the_kept_head() -> None:
    events = lines(3)
    seal(LOG)
    kept = verify(LOG).head
    tampered("UPDATE audit_auditevent SET actor = 'another' WHERE id = %s", events[1].pk)
    tampered("DELETE FROM audit_seal")
    seal(LOG)
    assert verify(LOG).wrong == []
    assert verify(LOG, head=kept).wrong == [f"no seal has the digest {kept}: the chain was rebuilt"]


def test_a_line_whose_transaction_ends_late_is_sealed_later_and_one_slipped_in_is_found() -> None:
    first = lines(1)[0]
    with psycopg.connect(environment()["DATABASE_URL"]) as late:
        late.execute("SET agentcore.scope = '*'")
        late.execute(
            "INSERT INTO audit_auditevent (id, at, actor, door, ip, action, target_type, target_id, target)"
            " VALUES (gen_random_uuid(), now(), 'late', '', '', 'test.late', '', '', '')"
        )
        lines(2)
        assert seal(LOG) == 3
        late.commit()
    assert seal(LOG) == 1 and verify(LOG).wrong == []
    gap = number_of(first) - 1  # a number that a transaction took and never used, and nothing can fill rightly
    tampered("UPDATE audit_seal SET sealed_at = sealed_at - interval '2 hours'")
    tampered(
        "INSERT INTO audit_auditevent (id, at, actor, door, ip, action, target_type, target_id, target, number, salt)"
        " VALUES (gen_random_uuid(), now(), 'nobody', '', '', 'test.slipped', '', '', '', %s, gen_random_uuid())",
        gap,
    )
    assert verify(LOG).wrong == [f"line {gap} was added after its time"]


def test_erased_words_leave_the_chain_whole_and_are_reported(acme: Organization) -> None:
    event = record(None, "test.person", organization=acme, after={"name": "Jane"})
    seal(LOG)
    with erasure_of(acme) as ordered:
        event_erase(event.pk, ordered, ["jane"])
    assert seal(LOG) == 2 and verify(LOG).wrong == []
    logged = AuditEvent.objects.get(action="audit.words_erased")
    assert logged.target_id == str(event.pk) and logged.after and logged.after["line"] == number_of(event)
    assert logged.after["erasure"] == str(ordered)
    tampered("UPDATE audit_auditevent SET after = %s WHERE id = %s", '{"name": "John"}', event.pk)
    [said] = verify(LOG).wrong
    assert said == f"words of line {number_of(event)} were altered without a logged erasure"


def test_the_application_can_only_add_seals() -> None:
    lines(1)
    seal(LOG)
    for table in (Seal, ErasedWords):
        with pytest.raises(Exception, match="permission denied"):
            table.objects.all().delete()


def test_sealing_reads_the_seals_of_the_last_hour_and_not_all() -> None:
    lines(1)
    seal(LOG)

    def grown(numbers: tuple[int, int]) -> int:
        copied(Seal, Seal.objects.earliest("pk").pk, numbers, id=None, sealed_at="now() - interval '2 hours'")
        return blocks_read(lambda: seal(LOG), Seal)

    few = grown((1, 200))
    assert grown((201, 6_000)) <= 2 * few


def test_many_who_write_and_seal_at_once_leave_no_line_out() -> None:
    def write() -> None:
        for _ in range(30):
            with transaction.atomic():
                lines(2)
        connection.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        seal_all()
    seal_all()
    result = verify(LOG)
    assert (result.lines, result.unsealed, result.wrong) == (240, 0, [])
