"""One file with all that belongs together: the database, the key that opens its secrets, and stored objects.

A tar archive: ``manifest.json``, ``database.dump`` (pg_dump's custom format), ``secret_key``, ``objects/...``. The
manifest has a version, the rows of each table in the snapshot that was dumped, and the SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from agentcore_site.embedded.programs import SILENCE, BackupUnusable, program, program_run
from agentcore_site.postgresql.server import server_at
from agentcore_site.postgresql.watched import CONNECT_SECONDS, PatientConnection

VERSION: Final = 1
MANIFEST, DUMP, KEY, OBJECTS = "manifest.json", "database.dump", "secret_key", "objects"
TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1"
)

Say = Callable[[str], None]


def backup_write(
    target: Path, *, owner_url: str, key: str, objects: Path | None, say: Say, silence: float = SILENCE
) -> dict[str, Any]:
    """Writes the archive and returns its manifest. The database may be in use: one snapshot is dumped, and objects are
    copied after it, since a row is written after its object. An empty ``key`` leaves the key out. ``silence``: seconds
    without progress of the dump until the backup fails; it leaves no file behind then.

    Raises:
        BackupUnusable: the file exists, pg_dump failed (with its message), or the database does not answer.
    """
    if target.exists():
        raise BackupUnusable(f"{target} is there already. Give another name.")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as name:
        folder = Path(name)
        say("dumping the database")
        rows = _dump(owner_url, folder / DUMP, silence)
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
        BackupUnusable: it is not an archive of ours, of a newer release, or damaged.
    """
    try:
        with tarfile.open(source) as archive:
            _unpack(archive, folder)
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, tarfile.TarError, ValueError) as error:
        raise BackupUnusable(f"{source} is no backup that can be read: {error}") from error
    if manifest["version"] > VERSION:
        raise BackupUnusable(f"{source} was made by a newer release. Restore it with that one.")
    for path, digest in manifest["sha256"].items():
        if not (folder / path).is_file() or _digest(folder / path) != digest:
            raise BackupUnusable(f"{source} is damaged: {path} is not what was backed up. Take another backup.")
    return manifest


def database_require_empty(owner_url: str) -> None:
    """Raises:
    BackupUnusable: there are tables already, or the database does not answer.
    """
    with _connected(owner_url) as connection:
        if connection.execute(TABLES).fetchone():
            raise BackupUnusable("The database has tables already. Restore into an empty one (another DATA_DIR).")


def database_restore(dump: Path, owner_url: str, silence: float = SILENCE) -> None:
    """Restores everything or nothing. Building an index may take long without progress: after ``silence`` seconds
    without an answer of the server the restore fails.

    Raises:
        BackupUnusable: pg_restore failed (with its message), or the database does not answer.
    """
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--dbname", owner_url]
    parts = conninfo_to_dict(owner_url)
    server = server_at(str(parts.get("hostaddr") or parts.get("host") or "localhost"), int(parts.get("port") or 5432))

    def answered() -> float:
        """Returns a new value each time the server answers."""
        return time.monotonic() if server.answers() else 0.0

    program_run(
        [str(program("pg_restore")), *options, str(dump)],
        silence=silence,
        sign=answered,
        advice="The database server does not answer. Nothing was restored: try again when it does.",
    )


def database_rows(owner_url: str) -> dict[str, int]:
    """Number of rows of each table.

    Raises:
        BackupUnusable: the database does not answer.
    """
    with _connected(owner_url) as connection:
        return _rows(connection)


@contextmanager
def _connected(owner_url: str) -> Iterator[PatientConnection]:
    """A connection that is closed at once after an error: a silent server would not receive a ROLLBACK either."""
    try:
        connection = PatientConnection.connect(owner_url, connect_timeout=CONNECT_SECONDS)
        try:
            yield connection
        finally:
            connection.close()
    except psycopg.OperationalError as error:
        raise BackupUnusable(
            f"The database does not answer: {error}. Nothing was written: try again when it does."
        ) from error


def _dump(owner_url: str, target: Path, silence: float) -> dict[str, int]:
    def size() -> int:
        return target.stat().st_size if target.exists() else -1

    with _connected(owner_url) as connection:
        # The snapshot lives as long as this transaction, which is idle meanwhile; the role may have a limit for that.
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.commit()
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [snapshot] = connection.execute("SELECT pg_export_snapshot()").fetchone() or [""]
        options = ["--format=custom", f"--snapshot={snapshot}", "--no-owner", "--no-privileges", f"--file={target}"]
        program_run(
            [str(program("pg_dump")), *options, owner_url],
            silence=silence,
            sign=size,
            advice="The database does not answer, or holds a lock. Nothing was written: try again when it does, or give"
            " --silence more seconds.",
        )
        return _rows(connection)


def _rows(connection: psycopg.Connection[Any]) -> dict[str, int]:
    names = [name for (name,) in connection.execute(TABLES)]
    counts = (connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))) for name in names)
    return {name: int((found.fetchone() or [0])[0]) for name, found in zip(names, counts, strict=True)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Files alone, below ``folder`` alone. By hand: Python 3.11 knows the filters of ``extractall`` from 3.11.4 on, and
    Debian 12 has 3.11.2.

    Raises:
        ValueError: something else is in it, which we never put there.
    """
    for member in archive:
        if member.isdir():
            continue
        target = folder / member.name
        content = archive.extractfile(member) if member.isreg() else None
        if content is None or not target.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{member.name!r} is not a file of a backup")
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            shutil.copyfileobj(content, file)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))
