"""Months that age: archived as Parquet, proven, dropped, read there, brought back, deleted by rule."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from io import StringIO
from threading import Barrier, Lock
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.contrib.auth import get_user_model
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.retention import rules
from agentcore_site.models import TableSize
from agentcore_site.storage import sizes
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from evaluation.warehouse.models import RowChange
from experiences.models import Agent, ArchivedJob, ArchiveState, QueryRecord, TrajectoryArchive, TrajectoryRecord
from experiences.trajectories import storage
from experiences.trajectories.archive import archive_lifecycle, files
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from experiences.trajectories.archive.services import archive_rule_set, restore_ask, retention_start
from experiences.trajectories.exports.selection import export_start
from experiences.trajectories.exports.streams import export_all
from experiences.trajectories.storage import trajectories_write
from tests import factories
from tests.support.callers import Caller
from tests.support.owner import as_owner
from tests.support.pages import html
from tests.support.rows import lived_run, owner_of, trajectory
from tests.support.running import run_to_end, slices_of
from tests.support.workers import eventually
from training.models import TrainingRun

pytestmark = pytest.mark.django_db
working = pytest.mark.django_db(transaction=True)  # a lease looks at the job by a connection of its own


@pytest.fixture(autouse=True)
def this_month(settings: Any) -> Iterator[date]:
    """Nothing but what the test makes; its partition is there again when it ends."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    yield timezone.now().date().replace(day=1)
    storage._known_partitions.clear()
    archive_lifecycle.partitions_ahead()


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


@pytest.fixture
def console(olivia: Any) -> Client:
    client = Client()
    client.force_login(olivia)
    return client


def archived(month: date) -> list[TrajectoryArchive]:
    """The month, archived and dropped."""
    made = list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(month)))
    assert archive_lifecycle.month_drop(month)
    return made


def exported(actor: Actor, run: TrainingRun) -> list[dict[str, Any]]:
    return export_all(export_start(actor, {"job": run.job_id}, format="json"))["trajectories"]


def test_a_month_goes_into_a_file_and_its_job_is_exported_and_restored_unchanged(
    operator: Actor, run: TrainingRun, this_month: date
) -> None:
    before = exported(operator, run)
    [archive] = archived(this_month)
    assert not TrajectoryRecord.objects.exists()
    assert exported(operator, run) == before and len(before) == 24
    [job] = archived_jobs(job_id=run.job_id)
    noted = RowChange.objects.count()
    assert job_restore(job) == 24
    assert exported(operator, run) == before and TrajectoryRecord.objects.count() == 24
    assert RowChange.objects.count() == noted > 0  # listeners for new rows received these, once
    archive.refresh_from_db()
    assert archive.state == ArchiveState.ARCHIVED and archive.rows == 24


def test_archived_rows_are_searched_by_text_of_the_query(
    operator: Actor, run: TrainingRun, this_month: date, console: Client
) -> None:
    def found(text: str) -> list[Any]:
        export = export_start(operator, {"job": run.job_id, "search": text}, format="json")
        return [row["trajectory_id"] for row in export_all(export)["trajectories"]]

    trajectories_write(owner_of(run), [trajectory(7, 50, n, "Where does the quagga live?", True) for n in range(2)])
    before = found("quagga")
    archived(this_month)
    assert not TrajectoryRecord.objects.exists()
    assert found("QUAGGA live") == before and len(before) == 2
    assert found("zebra") == []
    assert "2 trajectories" in html(console.get(f"/jobs/{run.pk}/?tab=trajectories&q=quagga"))
    assert not QueryRecord.objects.exists()  # they went with the month

    [part] = archived_jobs(job_id=run.pk)
    job_restore(part)
    assert found("quagga") == before
    assert "2 trajectories" in html(console.get("/trajectories/?q=quagga"))


def test_the_file_is_parquet_with_a_manifest_of_its_content(run: TrainingRun, this_month: date) -> None:
    [archive] = archived(this_month)
    with default_storage.open(archive.path) as stored:
        data = stored.read()
        assert pq.ParquetFile(stored).metadata.num_rows == 24
    manifest = orjson.loads(default_storage.open(archive.manifest).read())
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest() == archive.sha256
    assert manifest["jobs"][0]["job_id"] == str(run.job_id) and manifest["rows"] == 24


def later(monkeypatch: Any, days: int = 62) -> None:
    """So many days go by, by the application's clock."""
    now = timezone.now() + timedelta(days=days)
    monkeypatch.setattr(timezone, "now", lambda: now)


@working
def test_a_job_archives_what_is_due_and_drops_the_month_with_the_last_organisation(
    operator: Actor, run: TrainingRun, charlie: Any, elsewhere: Any, acme: Any, this_month: date, monkeypatch: Any
) -> None:
    theirs = lived_run(Actor(charlie), factories.AgentFactory(organization=elsewhere))
    later(monkeypatch)
    job = run_to_end(retention_start(operator, acme))
    assert (job.status, job.progress) == (Status.COMPLETED, 1.0)
    assert TrajectoryRecord.objects.filter(job_id=run.job_id).count() == 24  # the other's have no archive yet
    run_to_end(retention_start(None, elsewhere))
    assert not TrajectoryRecord.objects.exists()
    kept = {one.organization_id: one for one in TrajectoryArchive.objects.all()}
    assert {one.state for one in kept.values()} == {ArchiveState.ARCHIVED}
    assert str(acme.pk) in kept[acme.pk].path and str(elsewhere.pk) in kept[theirs.organization_id].path


def test_a_month_whose_job_is_active_stays(operator: Actor, agent: Agent, this_month: date, monkeypatch: Any) -> None:
    run = lived_run(operator, agent)
    type(run.job).objects.filter(pk=run.job_id).update(status=Status.PAUSED)
    later(monkeypatch)
    assert this_month not in archive_lifecycle.months_due()


def test_a_row_that_came_after_the_file_was_written_is_not_lost(
    operator: Actor, run: TrainingRun, this_month: date
) -> None:
    list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(this_month)))
    with connection.cursor() as cursor:  # a reward that came late, the one change that a row can see
        cursor.execute("UPDATE experiences_trajectory SET reward = 0.75, reward_before_ranking = coalesce(reward, 0)"
                       " WHERE iteration = 1 AND scenario = 0 AND rollout = 0")  # fmt: skip
    before = exported(operator, run)
    assert not archive_lifecycle.month_drop(this_month) and TrajectoryRecord.objects.count() == 24
    archived(this_month)  # the next time
    assert exported(operator, run) == before and TrajectoryArchive.objects.count() == 1


def test_a_process_that_dies_between_two_steps_loses_nothing_and_does_nothing_twice(
    operator: Actor, run: TrainingRun, this_month: date, monkeypatch: Any
) -> None:
    """It dies at each write to storage and to the database in turn."""
    before = exported(operator, run)
    calls = [
        (archive_lifecycle, "object_save_file"),
        (archive_lifecycle, "file_marks"),
        (archive_lifecycle, "manifest_store"),
        (archive_lifecycle, "_dropped"),
    ]
    for module, name in calls:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _die)
            with pytest.raises(Died):
                archived(this_month)
        assert TrajectoryRecord.objects.count() == 24
    archived(this_month)
    assert exported(operator, run) == before
    assert TrajectoryArchive.objects.count() == ArchivedJob.objects.count() == 1
    later(monkeypatch)
    assert archive_lifecycle.stray_delete(run.organization_id) == 2  # of the deaths before there was a row
    assert exported(operator, run) == before


class Died(Exception):
    """The process ends here."""


def _die(*_: Any, **__: Any) -> Any:
    raise Died


def test_a_file_that_reads_back_as_something_else_is_no_archive(
    run: TrainingRun, this_month: date, monkeypatch: Any
) -> None:
    save = archive_lifecycle.object_save_file

    def damaged(name: str, path: Any) -> None:
        save(name, path)
        data = bytearray(default_storage.open(name).read())
        data[len(data) // 2] ^= 1
        default_storage.delete(name)
        default_storage.save(name, ContentFile(bytes(data)))

    monkeypatch.setattr(archive_lifecycle, "object_save_file", damaged)
    with pytest.raises(archive_lifecycle.ArchiveUnsound, match="does not read back"):
        archived(this_month)
    assert TrajectoryRecord.objects.count() == 24 and not TrajectoryArchive.objects.exists()


def test_a_row_that_was_altered_on_its_way_into_the_file_is_found_at_once(
    run: TrainingRun, this_month: date, monkeypatch: Any
) -> None:
    """The database says each row's digest as it sends it, and the file that reads back must come to the same."""
    read = files._from_csv

    def altered(data: bytes) -> Any:
        table = read(data)
        paid = table["reward"].to_pylist()
        paid[0] = (paid[0] or 0) + 1e-9
        return table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(paid))

    monkeypatch.setattr(files, "_from_csv", altered)
    with pytest.raises(archive_lifecycle.ArchiveUnsound, match="holds other rows"):
        archived(this_month)
    assert TrajectoryRecord.objects.count() == 24 and not TrajectoryArchive.objects.exists()


@pytest.fixture
def unread() -> None:
    """The database does not work out the digests of a month's rows again."""
    with connection.cursor() as cursor, as_owner():
        cursor.execute(
            "CREATE OR REPLACE FUNCTION experiences_trajectory_marks(relation regclass, jobs uuid[] DEFAULT NULL,"
            " month date DEFAULT NULL) RETURNS TABLE (organization_id uuid, agent_id uuid, job_id uuid, n bigint,"
            " mark numeric) LANGUAGE plpgsql AS $$ BEGIN RAISE 'rows are read again'; END $$"
        )


def test_rows_in_the_versions_that_were_proven_are_not_read_again(
    run: TrainingRun, this_month: date, unread: None
) -> None:
    archived(this_month)
    assert not TrajectoryRecord.objects.exists()


def test_rows_in_other_versions_are_read_again(run: TrainingRun, this_month: date, unread: None) -> None:
    list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(this_month)))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE experiences_trajectory SET reward = 0.75, reward_before_ranking = coalesce(reward, 0)"
                       " WHERE iteration = 1 AND scenario = 0 AND rollout = 0")  # fmt: skip
    with pytest.raises(DatabaseError, match="rows are read again"):
        archive_lifecycle.month_drop(this_month)


def test_a_rewritten_equal_month_is_dropped_by_its_digests(run: TrainingRun, this_month: date) -> None:
    list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(this_month)))
    table = storage.partition_of(this_month)
    versions = f"SELECT sum(experiences_row_version(id, ctid, xmin)) FROM {table}"
    with connection.cursor() as cursor, as_owner():
        cursor.execute(versions)
        before = cursor.fetchone()
        cursor.execute(f"CLUSTER {table} USING {table}_pkey")  # as VACUUM FULL does
        cursor.execute(versions)
        assert cursor.fetchone() != before
    assert archive_lifecycle.month_drop(this_month) and not TrajectoryRecord.objects.exists()
    assert TrajectoryArchive.objects.count() == 1


@pytest.fixture
def two_files(run: TrainingRun, operator: Actor, agent: Agent, monkeypatch: Any) -> None:
    """Of two jobs, each in a file of its own."""
    lived_run(operator, agent)
    monkeypatch.setattr(archive_lifecycle, "FILE_ROWS", 20)


@working
def test_two_files_are_under_way_at_once_and_no_third(
    two_files: None, operator: Actor, agent: Agent, this_month: date, monkeypatch: Any
) -> None:
    for _ in range(3):
        lived_run(operator, agent)
    prove, write = archive_lifecycle.file_prove, archive_lifecycle.file_write
    lock, most, under_way, together = Lock(), 0, 0, Barrier(2, timeout=20)

    def writing(*of: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        return write(*of)

    def proving(*of: Any) -> Any:
        nonlocal under_way, proven
        with lock:
            proven += 1
            paired = proven <= 4
        if paired:  # breaks where one waits alone: the fifth has no partner
            together.wait()
        result = prove(*of)
        with lock:
            under_way -= 1
        return result

    proven = 0
    monkeypatch.setattr(archive_lifecycle, "file_write", writing)
    monkeypatch.setattr(archive_lifecycle, "file_prove", proving)
    assert len(archived(this_month)) == proven == 5 and most == 2
    assert not TrajectoryRecord.objects.exists()


@working
def test_a_slice_ends_with_its_present_file(
    two_files: None, operator: Actor, acme: Any, this_month: date, monkeypatch: Any, settings: Any
) -> None:
    later(monkeypatch)
    job = retention_start(operator, acme)
    with slices_of(settings, 0):
        claimed = lifecycle.claim(job.id)
        assert claimed is not None and run_slice(claimed) == "given back"
    assert TrajectoryArchive.objects.count() == 1
    job = run_to_end(job)
    assert (job.status, TrajectoryArchive.objects.count()) == (Status.COMPLETED, 2)
    assert not TrajectoryRecord.objects.exists()


@working
def test_rows_written_ahead_are_removed_with_a_corrupt_file(
    two_files: None, this_month: date, monkeypatch: Any, tmp_path: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(archive_lifecycle, "file_marks", _die)
    with pytest.raises(Died):
        archived(this_month)
    assert not TrajectoryArchive.objects.exists() and TrajectoryRecord.objects.count() == 48
    eventually(lambda: not list(tmp_path.iterdir()), why="files on this machine are gone")


@working
def test_a_job_that_was_brought_back_ages_again_without_a_second_file(
    operator: Actor, run: TrainingRun, this_month: date, monkeypatch: Any
) -> None:
    before = exported(operator, run)
    [archive] = archived(this_month)
    archive.refresh_from_db()
    run_to_end(restore_ask(operator, archive, run.job_id))
    assert TrajectoryRecord.objects.count() == 24
    later(monkeypatch, 20)
    assert this_month not in archive_lifecycle.months_due()
    later(monkeypatch, 31)
    run_to_end(retention_start(operator, run.organization))
    assert not TrajectoryRecord.objects.exists() and exported(operator, run) == before
    assert TrajectoryArchive.objects.count() == 1


def test_a_job_that_goes_on_after_its_month_was_dropped_is_read_whole(
    operator: Actor, run: TrainingRun, this_month: date
) -> None:
    archived(this_month)
    from tests.support.rows import group

    made = group(7, 0, 4)
    storage.trajectories_write(owner_of(run), made.trajectories)  # no partition is there: they wait in the default one
    storage.partition_make(this_month)
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT tableoid::regclass::text FROM experiences_trajectory")
        assert cursor.fetchall() == [(f"experiences_trajectory_{this_month:%Y_%m}",)]
    assert len(exported(operator, run)) == 28
    archived(this_month)
    assert len(exported(operator, run)) == 28 and not TrajectoryRecord.objects.exists()


@working
def test_archives_go_by_the_rule_of_the_agent_then_of_the_organisation_then_of_the_site(
    adam: Any, run: TrainingRun, agent: Agent, acme: Any, this_month: date, monkeypatch: Any
) -> None:
    boss = Actor(adam)
    [archive] = archived(this_month)
    later(monkeypatch, 40)
    assert not archive_lifecycle.expired()
    archive_rule_set(boss, acme.pk, None, 30)
    assert archive_lifecycle.expired() == [archive]
    archive_rule_set(boss, acme.pk, agent, 0)
    assert not archive_lifecycle.expired()
    archive_rule_set(boss, acme.pk, agent, None)
    run_to_end(retention_start(boss, acme))
    archive.refresh_from_db()
    assert archive.state == ArchiveState.DELETED and not default_storage.exists(archive.path)
    assert not default_storage.exists(archive.manifest) and exported(boss, run) == []


def test_an_erasure_takes_a_persons_rows_out_of_archives(
    adam: Any, run: TrainingRun, this_month: date, django_capture_on_commit_callbacks: Any
) -> None:
    boss = Actor(adam)
    before = exported(boss, run)
    word = before[0]["query"]
    hers = [one for one in before if one["query"] == word]
    [archive] = archived(this_month)
    old = archive.path
    with django_capture_on_commit_callbacks(execute=True):
        report = subject_erase(boss, [word])
    assert report.found["archived trajectories"] == len(hers) and report.left["archived trajectories"] == 0
    assert 0 < len(hers) < len(before) and not default_storage.exists(old)
    left = exported(boss, run)
    assert left == [one for one in before if one["query"] != word]
    assert sum(job_restore(one) for one in archived_jobs()) == len(left)


def test_commands_archive_and_bring_back_without_a_worker(
    operator: Actor, run: TrainingRun, this_month: date, monkeypatch: Any
) -> None:
    later(monkeypatch)
    out = StringIO()
    call_command("retention", "--dry-run", stdout=out)
    assert "trajectories: 24 rows are due" in out.getvalue() and TrajectoryRecord.objects.count() == 24
    call_command("retention", stdout=out)
    assert "is in the archive alone now" in out.getvalue() and not TrajectoryRecord.objects.exists()
    again = StringIO()
    call_command("retention", stdout=again)
    assert again.getvalue().startswith("Nothing is due.")
    call_command("restore_archive", "--month", f"{this_month:%Y-%m}", stdout=out)
    assert TrajectoryRecord.objects.count() == 24


def test_pages_read_the_archive_and_say_so(console: Client, run: TrainingRun, this_month: date) -> None:
    one, other = TrajectoryRecord.objects.filter(job_id=run.job_id).order_by("id")[:2]
    addresses = (
        f"/jobs/{run.job_id}/?tab=trajectories&outcome=success",
        f"/trajectories/{one.pk}/",
        f"/jobs/{run.job_id}/groups/{one.iteration}/{one.scenario}/",
        f"/trajectories/compare/?a={one.pk}&b={other.pk}",
    )
    before = [html(console.get(address)) for address in addresses]
    archived(this_month)
    for address, hot in zip(addresses, before, strict=True):
        shown = html(console.get(address))
        assert "read from the archive" in shown and "read from the archive" not in hot, address
        assert hot.count("data-row") == shown.count("data-row") and hot.count("advantage") == shown.count("advantage")
    assert console.get(f"/trajectories/{one.pk}/json/").json()["query"] == one.query
    assert TrajectoryRecord.objects.count() == 0  # the table of the session is gone with its page


def test_a_stranger_reads_no_archive(charlie: Any, run: TrainingRun, this_month: date) -> None:
    one = TrajectoryRecord.objects.filter(job_id=run.job_id).first()
    assert one is not None
    archived(this_month)
    stranger = Client()
    stranger.force_login(charlie)
    for address in (f"/trajectories/{one.pk}/", f"/jobs/{run.job_id}/groups/{one.iteration}/{one.scenario}/"):
        assert stranger.get(address).status_code == 404
    assert Caller(charlie).get(f"trajectories/{one.pk}").status_code == 404
    assert Caller(charlie).get("archives").json()["results"] == []


def test_rest_lists_and_reads_archived_trajectories(operator: Actor, run: TrainingRun, this_month: date) -> None:
    caller, job = Caller(operator.user), str(run.job_id)
    before = caller.get("trajectories", job=job, iteration=1, limit=5).json()
    one = before["results"][0]["trajectory_id"]
    whole = caller.get(f"trajectories/{one}").json()
    archived(this_month)
    assert caller.get("trajectories", job=job, iteration=1, limit=5).json() == before
    assert caller.get(f"trajectories/{one}").json() == whole
    [shown] = caller.get("archives").json()["results"]
    assert (shown["rows"], shown["jobs"], shown["archive_state"]) == (24, 1, "archived")


def test_the_page_of_storage_shows_the_archive_and_each_retention(
    console: Client, run: TrainingRun, this_month: date, operator: Actor
) -> None:
    get_user_model().objects.filter(pk=operator.user.pk).update(is_staff=True)
    assert "Its growth is known tomorrow" in html(console.get("/archives/"))
    day = timezone.now().date() - timedelta(days=2)
    TableSize.objects.bulk_create([TableSize(day=day, name=name, size=0) for name in sizes()])
    archived(this_month)
    shown = html(console.get("/archives/"))
    assert "a day: the disk is full in" in shown and "Restore" in shown
    assert all(name.lower() in shown.lower() for name, _ in rules.items())
    assert "No archive matches" in html(console.get("/archives/?q=nothing-of-that-name"))


def test_only_staff_see_the_storage_of_all_organisations(console: Client, operator: Actor) -> None:
    assert "The database takes" not in html(console.get("/archives/"))
    assert Caller(operator.user).get("storage").status_code == 403
    get_user_model().objects.filter(pk=operator.user.pk).update(is_staff=True)
    assert "The database takes" in html(console.get("/archives/"))
    assert console.get("/api/v1/storage").json()["size_bytes"] > 0
    assert Caller(operator.user).get("storage").status_code == 403  # by a key of one organisation
