"""A snapshot of the tests' PostgreSQL after its migrations, from which later processes of tests start.

To migrate an empty database takes 15 s of a core, and each process of a run has a server of its own. The snapshot is
the server's own base backup, of the migrations as they are: where one differs, there is none, and the next process
migrates and leaves one. What runs after migrations (rights, permissions, groups) runs on a copy too, as on an updated
site.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agentcore_site import env
from agentcore_site.embedded.postgres import Postgres
from agentcore_site.embedded.stack import Stack

NAME: Final = "test_agentcore"  # of the database, in each process: its server is its own
FOLDER: Final = env.ROOT / ".pytest_cache" / "database"
BACKUP, PASSWORD = "base.tar.gz", "postgres_password"
# Beside migrations: releases of PostgreSQL and of Django, and what only ever adds to the rights that a role has.
BASES: Final = ("docker/requirements-dev.txt", "agentcore_site/database_roles.py")
PROGRAM_SECONDS: Final = 120

is_copy = False  # whether this process's server began with the snapshot


def digest() -> str:
    """Of all that makes the database what it is after its migrations."""
    result = hashlib.sha256()
    for path in _sources():
        result.update(f"{path.relative_to(env.ROOT)}\n".encode())
        result.update(path.read_bytes())
    return result.hexdigest()[:20]


def restore(stack: Stack) -> None:
    """Gives the stack's PostgreSQL, which has not started yet, the data of the snapshot, if there is one."""
    global is_copy
    kept, server = FOLDER / digest(), Postgres(stack.place, stack.secrets, 0)
    if not kept.is_dir() or server.data.exists():
        return
    server.data.mkdir(mode=0o700)
    unpacked = ["tar", "-xzf", str(kept / BACKUP), "--no-same-owner", "-C", str(server.data)]
    subprocess.run(unpacked, check=True, timeout=PROGRAM_SECONDS)
    server.place.give(server.data, server.name)
    env.private_file(stack.secrets / PASSWORD, (kept / PASSWORD).read_text(encoding="utf-8"))
    is_copy = True


def migrated(url: str) -> str:
    """The address of the migrated database on the server of ``url``."""
    return urlsplit(url)._replace(path=f"/{NAME}").geturl()


def keep(stack: Stack, owner_url: str) -> None:
    """Leaves a snapshot of the migrated database for those that start later, in the place of older ones."""
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=FOLDER))
    program = Postgres(stack.place, stack.secrets, 0).bin / "pg_basebackup"
    options = ["-Ft", "--gzip", "-X", "fetch", "-c", "fast", "--no-manifest", "-D", str(unfinished), "-d", owner_url]
    subprocess.run([str(program), *options], check=True, timeout=PROGRAM_SECONDS)
    shutil.copy(stack.secrets / PASSWORD, unfinished / PASSWORD)
    kept = FOLDER / digest()
    for other in FOLDER.iterdir():
        if other != kept and not other.name.startswith("."):  # that of now may be read by a process that starts
            shutil.rmtree(other, ignore_errors=True)
    try:
        unfinished.rename(kept)
    except OSError:  # another process was first
        shutil.rmtree(unfinished)


def _sources() -> Iterator[Path]:
    folders = (path for path in env.ROOT.iterdir() if (path / "__init__.py").exists())
    yield from sorted(path for folder in folders for path in folder.glob("**/migrations/*.py"))
    yield from (env.ROOT / name for name in BASES)


if __name__ == "__main__":  # as `.ci/tests` asks: 0 if there is a snapshot of the migrations as they are
    sys.exit(not (FOLDER / digest()).is_dir())
