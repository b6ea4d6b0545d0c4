"""A backup is made while a job runs, and restored into an empty folder, where the job goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentcore_site import env
from tests.embedded.test_embedded import GIVEN, folder  # noqa: F401  (a fixture)


def environment(data: Path) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if name not in (*GIVEN, "DATABASE_AS_OWNER")}
    return mine | {"DATA_DIR": str(data), "JOB_LEASE_SECONDS": "5"}


def manage(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(env.ROOT / "manage.py"), *arguments]
    return subprocess.run(command, env=environment(data), capture_output=True, text=True, timeout=240)


class Up:
    """``manage.py up`` on a data folder."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.log = open(data.with_suffix(".log"), "wb")  # noqa: SIM115
        command = [sys.executable, str(env.ROOT / "manage.py"), "up", "--workers", "1", *options]
        self.process = subprocess.Popen(command, env=environment(data), stdout=self.log, stderr=self.log)

    def ask(self, query: str) -> Any:
        urls = json.loads((self.data / "run" / "services.json").read_text())
        with psycopg.connect(urls["database_url"]) as connection:
            return connection.execute(query).fetchone()

    def until(self, query: str, seconds: float = 180) -> Any:
        """The first row of which the first value is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.data.with_suffix(".log").read_text()[-3000:]
            try:
                if (row := self.ask(query)) and row[0]:
                    return row
            except (OSError, psycopg.Error):
                pass
            time.sleep(0.3)
        raise AssertionError(f"not within {seconds} s: {query}\n" + self.data.with_suffix(".log").read_text()[-3000:])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def test_a_backup_of_a_running_job_goes_on_in_an_empty_folder(folder: Path) -> None:  # noqa: F811
    first, second, file = folder / "first", folder / "second", folder / "backup.tar"
    up = Up(first, "--demo", "--seed", "1", "--port", "0")
    try:
        up.until("SELECT count(*) > 2 FROM training_iteration")
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
    up = Up(second, "--port", "0")
    try:
        began = manifest["rows"]["training_iteration"]
        up.until(f"SELECT count(*) >= {began} + 3 FROM training_iteration")
        assert up.ask("SELECT status FROM jobs_job WHERE kind = 'training'")[0] in ("running", "queued")
        assert up.ask("SELECT count(*) FROM audit_auditevent")[0] >= manifest["rows"]["audit_auditevent"]
    finally:
        up.stop()

    again = manage(second, "restore", str(file))
    assert again.returncode == 1 and "has tables already" in again.stderr


def test_a_damaged_backup_is_refused_and_leaves_nothing(folder: Path) -> None:  # noqa: F811
    file = folder / "backup.tar"
    shutil.copy(__file__, file)
    done = manage(folder / "data", "restore", str(file))
    assert done.returncode == 1 and "no backup that can be read" in done.stderr


@pytest.mark.parametrize("name", ["database.dump", "secret_key"])
def test_each_file_is_checked(folder: Path, name: str) -> None:  # noqa: F811
    from agentcore_site.embedded.backup import Unusable, backup_read

    (folder / "in").mkdir()
    manifest = {"version": 1, "rows": {}, "sha256": {name: "0" * 64}}
    (folder / "in" / "manifest.json").write_text(json.dumps(manifest))
    (folder / "in" / name).write_text("changed")
    with tarfile.open(folder / "backup.tar", "w") as archive:
        archive.add(folder / "in", arcname=".")
    with pytest.raises(Unusable, match=f"{name} is not what was backed up"):
        backup_read(folder / "backup.tar", folder / "out")
