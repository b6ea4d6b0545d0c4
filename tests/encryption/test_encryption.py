"""Encryption at rest: what is written, read, moved, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.db import ProgrammingError, connection, transaction
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.encryption import data_keys
from agentcore_site.encryption.columns import Sealed
from agentcore_site.encryption.models import DataKey
from agentcore_site.encryption.reencryption import rows_by_version
from agentcore_site.encryption.services import encryption_end, key_rotate, texts_move
from agentcore_site.ids import uuid7
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.lifecycle import claim
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.errors import Conflict, Forbidden
from agentcore_site.lib.key_errors import KeyUnavailable, Unopenable
from agentcore_site.lib.row_scope import NOTHING, limited
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from evaluation.events.models import EventPublisher, OutboxEvent
from evaluation.serving.models import ProductionTrace, TraceStatus
from evaluation.serving.traces.writing import traces_write
from evaluation.warehouse.models import RowChange
from experiences.models import Agent, ExecutionTrace, TrajectoryRecord
from experiences.trajectories.archive import archive_lifecycle
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from experiences.trajectories.exports.selection import export_start
from experiences.trajectories.exports.streams import export_all
from experiences.trajectories.rollout_writer import RolloutWriter
from experiences.trajectories.step_window import steps_between
from experiences.trajectories.storage import TrajectoryScope, trajectories_kept, trajectories_write
from tests.support.pages import html
from tests.support.rows import group, lived_run, owner_of, queued_run, trajectory
from tests.support.running import run_to_end, slices_of
from tests.support.transit_server import TOKEN, TransitServer, transit_server

pytestmark = pytest.mark.django_db
working = pytest.mark.django_db(transaction=True)  # a lease looks at the job by a connection of its own

TABLE = "experiences_trajectory"


@pytest.fixture(autouse=True)
def fresh_keys() -> None:
    data_keys.forget()


@pytest.fixture
def admin(adam: Any) -> Actor:
    return Actor.of(adam)


def stored() -> list[str]:
    """The steps of all rows as the database has them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT steps::text FROM experiences_trajectory ORDER BY id")
        return [text for (text,) in cursor.fetchall()]


def said() -> list[Any]:
    return [row.steps for row in TrajectoryRecord.objects.order_by("id")]


@working
def test_stored_values_are_encrypted_moved_to_another_key_and_decrypted_and_read_the_same(
    admin: Actor, operator: Actor, agent: Agent, acme: Any, settings: Any
) -> None:
    run = lived_run(operator, agent)
    plain, before = stored(), said()
    assert '"state"' in plain[0]
    for version in (1, 2):
        with slices_of(settings, 0):
            assert run_to_end(key_rotate(admin, acme)).status == Status.COMPLETED
        assert all(text.startswith(f'"sealed:{version}:') for text in stored())
        assert said() == before
        assert rows_by_version(acme.pk)[TABLE] == {version: 24}
    kept = trajectories_kept(owner_of(run), iteration=0)
    assert len(kept) == 12 and all(one.steps for one in kept.values())
    row = TrajectoryRecord.objects.order_by("id")[0]
    assert steps_between(row, 0, 0) == before[0][:1]
    assert run_to_end(encryption_end(admin, acme)).status == Status.COMPLETED
    assert stored() == plain and DataKey.objects.filter(organization=acme, active=False).count() == 2


@working
def test_rows_under_another_key_are_no_news_to_what_listens(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    EventPublisher.objects.create(organization=acme)
    lived_run(operator, agent)
    noted = OutboxEvent.objects.count(), RowChange.objects.count()
    assert all(noted)
    run_to_end(key_rotate(admin, acme))
    assert all(text.startswith('"sealed:1:') for text in stored())
    assert (OutboxEvent.objects.count(), RowChange.objects.count()) == noted


def test_which_key_is_active_is_known_also_where_no_row_is_seen(admin: Actor, acme: Any) -> None:
    key_rotate(admin, acme)
    with limited(NOTHING):
        assert not DataKey.objects.exists() and data_keys.active_version(acme.pk) == 1
        with pytest.raises(KeyUnavailable):  # and nothing is written in plain
            data_keys.active_key(acme.pk)


def test_a_text_that_was_moved_to_another_row_or_altered_is_refused(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    key_rotate(admin, acme)
    run = lived_run(operator, agent)
    first, second = TrajectoryRecord.objects.order_by("id")[:2]
    [mine, other] = stored()[:2]
    for damaged in (other, mine[:-6] + ("AAA=" if mine[-6:-2] != "AAA=" else "BBB=") + mine[-2:]):
        row = TrajectoryRecord.objects.get(id=first.id)
        row.steps = Sealed(damaged.strip('"'))
        with pytest.raises(Unopenable, match="altered, or moved"):
            _ = row.steps
    first.organization_id = run.agent_id  # as if the row were another organisation's
    with pytest.raises(KeyUnavailable):
        _ = first.steps
    assert second.steps


@pytest.fixture
def transit(settings: Any) -> Iterator[TransitServer]:
    with transit_server() as server:
        settings.VAULT_ADDR, settings.VAULT_TOKEN, settings.ENCRYPTION_HOLDER = server.url, TOKEN, "vault"
        yield server


def test_a_key_server_is_asked_once_for_many_rows(
    transit: TransitServer, admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    key_rotate(admin, acme).delete()
    lived_run(operator, agent)
    assert len(said()) == 24 and all(said())
    assert transit.asked == ["encrypt", "decrypt"]


@working
def test_while_the_key_server_is_away_pages_say_so_jobs_wait_and_nothing_is_written_in_plain(
    transit: TransitServer, admin: Actor, operator: Actor, agent: Agent, acme: Any, olivia: Any
) -> None:
    job = key_rotate(admin, acme)
    lived_run(operator, agent)
    row = TrajectoryRecord.objects.order_by("id")[0]
    transit.refusing = True
    data_keys.forget()
    reader = Client()
    reader.force_login(olivia)
    answer = reader.get(f"/trajectories/{row.id}/")
    assert answer.status_code == 503 and b"Vault is sealed" in answer.content
    with pytest.raises(KeyUnavailable):
        trajectories_write(owner_of_job(row), [group(9, 1, 1).trajectories[0]])
    assert TrajectoryRecord.objects.count() == 24
    waiting = run_to_end(job)
    assert (waiting.status, waiting.status_reason) == (Status.PAUSED, Reason.KEY_AWAY) and waiting.not_before
    transit.refusing = False
    assert reader.get(f"/trajectories/{row.id}/").status_code == 200


@working
def test_rollouts_that_were_paid_for_wait_for_the_key(
    transit: TransitServer, admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    key_rotate(admin, acme).delete()
    run = queued_run(operator, agent)
    transit.refusing = True
    data_keys.forget()

    async def lived(writer: RolloutWriter) -> None:
        written: Any = writer.store(owner_of(run), trajectory(1, 0, 0, "Where is it?", True))
        await asyncio.sleep(1.2)
        writer.check()
        assert not written.done()
        transit.refusing = False
        await asyncio.wait_for(written, 20)

    claimed: Any = claim(run.job_id)
    with Lease(claimed) as lease:
        writer = RolloutWriter(lease, agent.id, paid=True)
        asyncio.run(lived(writer))
        writer.close()
    [text] = stored()
    assert text.startswith('"sealed:1:')


def owner_of_job(row: TrajectoryRecord) -> TrajectoryScope:
    return TrajectoryScope(row.job_id, row.organization_id, row.agent_id, row.month)


def test_data_keys_move_to_a_key_server_and_to_its_newest_key_and_texts_stay(
    admin: Actor, operator: Actor, agent: Agent, acme: Any, settings: Any
) -> None:
    key_rotate(admin, acme).delete()
    lived_run(operator, agent)
    before, texts = said(), stored()
    with transit_server() as server:
        settings.VAULT_ADDR, settings.VAULT_TOKEN, settings.ENCRYPTION_HOLDER = server.url, TOKEN, "vault"
        for version in (1, 2):
            call_command("rotate_keys", "--seal", stdout=StringIO())
            assert DataKey.objects.get().sealed.startswith(f"vault:v{version}:")
            server.rotate()
        data_keys.forget()
        assert said() == before and stored() == texts
        assert server.asked == ["encrypt", "rewrap", "decrypt"]
        settings.VAULT_TOKEN = "hvs.another"
        data_keys.forget()
        with pytest.raises(KeyUnavailable, match="403: permission denied"):
            said()


def test_an_operator_may_not_and_two_at_once_may_not(operator: Actor, admin: Actor, acme: Any) -> None:
    with pytest.raises(Forbidden):
        key_rotate(operator, acme)
    with pytest.raises(Conflict, match="switched off"):
        encryption_end(admin, acme)
    key_rotate(admin, acme)
    with pytest.raises(Conflict, match="Let that job end"):
        key_rotate(admin, acme)


def test_an_erasure_finds_words_in_encrypted_texts_of_rows_and_of_archives(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    key_rotate(admin, acme).delete()
    run = lived_run(operator, agent)
    one = group(7, 1, 1).trajectories[0]
    one.steps[0].state["observation"] = "Ask Zerlina Quandt."
    trajectories_write(owner_of(run), [one])
    assert not any("Zerlina" in text for text in stored())
    [found] = [row for row in subject_erase(admin, ["zerlina quandt"], dry_run=True).found.items() if row[1]]
    assert found == ("trajectories", 1)
    [month] = {row.month for row in TrajectoryRecord.objects.all()}
    [archive] = list(
        archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(month))
    )
    assert b"Zerlina" not in b"".join(default_storage.open(archive.path))
    assert subject_erase(admin, ["zerlina quandt"], dry_run=True).found["archived trajectories"] == 1
    subject_erase(admin, ["zerlina quandt"])
    assert TrajectoryRecord.objects.count() == 24


def test_traces_of_production_are_encrypted_and_read_as_they_were(admin: Actor, agent: Agent, acme: Any) -> None:
    key_rotate(admin, acme)
    body = {"messages": [{"role": "user", "content": "Where is Zerlina's parcel?"}]}
    row = {
        "id": str(uuid7()),
        "organization_id": str(acme.pk),
        "agent_id": str(agent.pk),
        "arm": "",
        "share": None,
        "model": "m",
        "status": TraceStatus.OK,
        "request": body,
        "response": {"content": "In the post."},
        "sampled": "tokens",
        "created_at": timezone.now().isoformat(),
    }
    traces_write([row])
    with connection.cursor() as cursor:
        cursor.execute("SELECT serving_productiontrace::text FROM serving_productiontrace")
        assert "parcel" not in cursor.fetchone()[0]
    trace = ProductionTrace.objects.get()
    assert (trace.request, trace.answer, trace.sampled) == (body, "In the post.", "tokens")
    assert subject_erase(admin, ["zerlina's"], dry_run=True).found["production traces"] == 1


@working
def test_an_admin_switches_encryption_on_in_the_console_and_sees_which_rows_are_under_which_key(
    adam: Any, operator: Actor, agent: Agent, acme: Any
) -> None:
    lived_run(operator, agent)
    console = Client()
    console.force_login(adam)
    assert "New data is not encrypted." in html(console.get("/encryption/"))
    console.post(f"/encryption/{acme.pk}/rotate/")
    assert "0 % are done" in html(console.get("/encryption/"))
    run_to_end(Job.objects.get(kind="encryption"))
    page = html(console.get("/encryption/"))
    assert "New data is encrypted with key 1." in page
    assert '<td class="number" data-label="Rows">24</td>' in page
    changed = AuditEvent.objects.get(action="encryption.changed")
    assert (changed.actor, changed.before, changed.after) == ("adam", {"version": 0}, {"version": 1})


def test_an_archive_keeps_rows_under_the_key_that_they_had_and_gives_them_back(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    job = key_rotate(admin, acme)
    run = lived_run(operator, agent)
    before, texts = said(), stored()
    [month] = {row.month for row in TrajectoryRecord.objects.all()}
    Job.objects.filter(pk__in=[job.pk, run.job_id]).update(status=Status.COMPLETED)
    list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(month)))
    assert archive_lifecycle.month_drop(month) and not TrajectoryRecord.objects.exists()
    run_to_end(encryption_end(admin, acme))
    read = export_all(export_start(operator, {"job": run.job_id}, format="json"))["trajectories"]
    assert all(row["steps"] for row in read) and len(read) == 24
    [archived] = archived_jobs(job_id=run.job_id)
    assert job_restore(archived) == 24 and stored() == texts
    run_to_end(texts_move(admin, acme))
    assert said() == before and rows_by_version(acme.pk)[TABLE] == {0: 24}


def test_deleting_the_organisation_makes_its_ciphertexts_unreadable(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    key_rotate(admin, acme)
    lived_run(operator, agent)
    DataKey.objects.filter(organization=acme).delete()  # as it goes with its organisation
    data_keys.forget()
    with pytest.raises(KeyUnavailable, match="can't be read any more"):
        said()


@pytest.mark.parametrize("text", ["", "tokens", "sealed:1:AAAA", "sealed:0:", "sealed:0:AAAA", "sealed:x:"])
def test_a_plain_text_with_the_mark_of_encryption_is_read_unchanged(
    text: str, admin: Actor, agent: Agent, acme: Any
) -> None:
    row = ProductionTrace.objects.create(organization=acme, agent=agent, model="m", status="ok", sampled=text)
    assert ProductionTrace.objects.get(pk=row.pk).sampled == text


@working
def test_executions_are_encrypted_and_their_history_stays_append_only(
    admin: Actor, operator: Actor, agent: Agent, acme: Any
) -> None:
    body = {"question": "Where is Zerlina's parcel?"}
    kept = {"organization": acme, "agent": agent, "duration_ms": 1.0, "success": True, "outputs": {"text": "Sent."}}
    ExecutionTrace.objects.create(inputs=body, **kept)
    run_to_end(key_rotate(admin, acme))
    ExecutionTrace.objects.create(inputs=body, **kept)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM experiences_executiontrace e WHERE e::text LIKE '%parcel%'")
        assert cursor.fetchone() == (0,)
    assert [row.inputs for row in ExecutionTrace.objects.all()] == [body, body]
    assert rows_by_version(acme.pk)["experiences_executiontrace"] == {1: 2}
    assert subject_erase(admin, ["zerlina's"], dry_run=True).found["executions"] == 2
    with pytest.raises(ProgrammingError, match="append-only"), transaction.atomic():
        ExecutionTrace.objects.update(success=False)
