"""A backup is made while a job runs, and restored into an empty folder, where the job goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from agentcore_site.embedded.backup import backup_read, backup_write, database_restore
from agentcore_site.embedded.ports import wait_until
from agentcore_site.embedded.programs import BackupUnusable, program
from tests.support.proxy import Proxy
from tests.support.up import Up, manage
from tests.support.workers import environment


@pytest.mark.thorough(reason="two starts of the product, each with a new database")
def test_a_backup_of_a_running_job_goes_on_in_an_empty_folder(folder: Path, own_services: None) -> None:
    first, second, file = folder / "first", folder / "second", folder / "backup.tar"
    up = Up(first, "--workers", "1", "--demo", "--seed", "1", "--port", "0")
    try:
        up.until("SELECT count(*) > 0 FROM training_iteration")
        made = manage(first, "backup", str(file))
        assert made.returncode == 0, made.stderr
    finally:
        up.stop()
    assert file.stat().st_mode & 0o077 == 0
    with tarfile.open(file) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert manifest["rows"]["experiences_trajectory"] > 0

    restored = manage(second, "restore", str(file))
    assert restored.returncode == 0, restored.stderr
    assert (second / "secret_key").read_text() == (first / "secret_key").read_text()
    up = Up(second, "--workers", "1", "--port", "0")
    try:
        began = manifest["rows"]["training_iteration"]
        up.until(f"SELECT count(*) >= {began} + 1 FROM training_iteration")
        assert up.rows("SELECT status FROM jobs_job WHERE kind = 'training'")[0][0] in ("running", "queued")
        assert up.rows("SELECT count(*) FROM audit_auditevent")[0][0] >= manifest["rows"]["audit_auditevent"]
    finally:
        up.stop()

    again = manage(second, "restore", str(file))
    assert again.returncode == 1 and "has tables already" in again.stderr


@pytest.mark.slow(reason="starts a command, which imports Django")
def test_a_damaged_backup_is_refused_and_leaves_nothing(folder: Path) -> None:
    file = folder / "backup.tar"
    shutil.copy(__file__, file)
    done = manage(folder / "data", "restore", str(file))
    assert done.returncode == 1 and "no backup that can be read" in done.stderr


@pytest.mark.parametrize("name", ["database.dump", "secret_key"])
def test_each_file_is_checked(folder: Path, name: str) -> None:
    (folder / "in").mkdir()
    manifest = {"version": 1, "rows": {}, "sha256": {name: "0" * 64}}
    (folder / "in" / "manifest.json").write_text(json.dumps(manifest))
    (folder / "in" / name).write_text("changed")
    with tarfile.open(folder / "backup.tar", "w") as archive:
        archive.add(folder / "in", arcname=".")
    with pytest.raises(BackupUnusable, match=f"{name} is not what was backed up"):
        backup_read(folder / "backup.tar", folder / "out")


@pytest.mark.parametrize("hostile", ["link", "above"])
def test_nothing_but_files_below_the_folder_is_unpacked(folder: Path, hostile: str) -> None:
    entry = tarfile.TarInfo("objects/one" if hostile == "link" else "../one")
    if hostile == "link":
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(folder / "backup.tar", "w") as archive:
        archive.addfile(entry)
    (folder / "out").mkdir()
    with pytest.raises(BackupUnusable, match="is not a file of a backup"):
        backup_read(folder / "backup.tar", folder / "out")
    assert not (folder / "one").exists() and not list((folder / "out").rglob("one"))


def owner_url() -> str:
    given = environment()
    return given.get("DATABASE_OWNER_URL") or given["DATABASE_URL"]


def backed_up(file: Path, url: str, **options: Any) -> None:
    backup_write(file, owner_url=url, key="", objects=None, say=lambda message: None, **options)


def test_a_backup_of_a_database_that_falls_silent_ends_and_leaves_nothing(folder: Path, db: None) -> None:
    with Proxy(owner_url()) as way, ThreadPoolExecutor(1) as thread:
        done = thread.submit(backed_up, folder / "backup.tar", way.url, silence=1.0)
        assert wait_until(lambda: any(folder.glob(".backup-*/database.dump")), 30)
        way.freeze()
        with pytest.raises(BackupUnusable, match=r"pg_dump gave no sign of life for 1 s.*Nothing was written"):
            done.result(20)
        way.cut()
        with pytest.raises(BackupUnusable, match="The database does not answer"):
            backed_up(folder / "backup.tar", way.url)
    assert not any(folder.iterdir())


def test_a_backup_outlasts_the_limit_of_idle_transactions(folder: Path, db: None) -> None:
    limit = "?options=-c%20idle_in_transaction_session_timeout%3D50"
    backed_up(folder / "backup.tar", owner_url() + limit)
    assert (folder / "backup.tar").exists()


def test_a_restore_waits_for_a_slow_database_and_not_for_a_silent_one(folder: Path, db: None) -> None:
    """A view that is filled for 1.6 seconds, with a bound of one."""
    url = urlsplit(owner_url())
    own = url._replace(path="/restored_slowly").geturl()
    with psycopg.connect(url.geturl(), autocommit=True) as owner:
        try:
            owner.execute("CREATE DATABASE restored_slowly TEMPLATE template0")
            with psycopg.connect(own) as made:
                made.execute("CREATE MATERIALIZED VIEW slow AS SELECT pg_sleep(1.6)::text WITH NO DATA")
                made.execute("REFRESH MATERIALIZED VIEW slow")
            dump = folder / "slow.dump"
            subprocess.run([program("pg_dump"), "--format=custom", f"--file={dump}", own], check=True, timeout=60)
            owner.execute("DROP DATABASE restored_slowly WITH (FORCE)")
            owner.execute("CREATE DATABASE restored_slowly TEMPLATE template0")
            with Proxy(own) as way:
                way.freeze()
                with pytest.raises(
                    BackupUnusable, match=r"pg_restore gave no sign of life.*does not answer\. Nothing was"
                ):
                    database_restore(dump, way.url, silence=1.0)
                way.heal()
                database_restore(dump, way.url, silence=1.0)
            with psycopg.connect(own) as made:
                assert made.execute("SELECT count(*) FROM slow").fetchone() == (1,)
        finally:
            owner.execute("DROP DATABASE IF EXISTS restored_slowly WITH (FORCE)")
