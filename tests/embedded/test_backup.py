"""A backup is made while a job runs, and restored into an empty folder, where the job goes on."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from agentcore_site.embedded.backup import Unusable, backup_read
from tests.embedded.test_embedded import folder  # noqa: F401  (a fixture)
from tests.support.up import Up, manage


def test_a_backup_of_a_running_job_goes_on_in_an_empty_folder(folder: Path) -> None:  # noqa: F811
    first, second, file = folder / "first", folder / "second", folder / "backup.tar"
    up = Up(first, "--workers", "1", "--demo", "--seed", "1", "--port", "0")
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
    up = Up(second, "--workers", "1", "--port", "0")
    try:
        began = manifest["rows"]["training_iteration"]
        up.until(f"SELECT count(*) >= {began} + 3 FROM training_iteration")
        assert up.rows("SELECT status FROM jobs_job WHERE kind = 'training'")[0][0] in ("running", "queued")
        assert up.rows("SELECT count(*) FROM audit_auditevent")[0][0] >= manifest["rows"]["audit_auditevent"]
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
    (folder / "in").mkdir()
    manifest = {"version": 1, "rows": {}, "sha256": {name: "0" * 64}}
    (folder / "in" / "manifest.json").write_text(json.dumps(manifest))
    (folder / "in" / name).write_text("changed")
    with tarfile.open(folder / "backup.tar", "w") as archive:
        archive.add(folder / "in", arcname=".")
    with pytest.raises(Unusable, match=f"{name} is not what was backed up"):
        backup_read(folder / "backup.tar", folder / "out")
