"""A streaming standby of the tests' PostgreSQL, as a site's read replica is one; promoted, a primary of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from agentcore_site.embedded.ports import free_port, wait_until
from agentcore_site.embedded.postgres import Postgres
from agentcore_site.lib.service_paths import place_for
from tests.support.away import children_of
from tests.support.workers import environment


@dataclass(frozen=True)
class Standby:
    url: str  # for the database and the role of the tests
    owner_url: str
    process: subprocess.Popen[bytes]

    def say(self, statement: str) -> None:
        """By a role that may steer the replay."""
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(statement)

    def kill(self) -> None:
        """SIGKILL for the server with all its sessions."""
        for pid in (self.process.pid, *children_of(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)

    def promote(self) -> None:
        """It waits for no standby of its own."""
        self.say("SELECT pg_promote()")
        self.say("ALTER SYSTEM RESET synchronous_standby_names")
        self.say("SELECT pg_reload_conf()")

    def wait_for_standbys(self) -> None:
        """Each commit waits until a standby has it."""
        self.say("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.say("SELECT pg_reload_conf()")


@contextmanager
def standby(of: str | None = None) -> Iterator[Standby]:
    """``of``: the owner's address of the database; of the tests' where there is none."""
    folder = Path(tempfile.mkdtemp(prefix="standby-"))
    folder.chmod(0o711)
    server = Postgres(place_for(folder), folder, free_port(0), {"max_connections": "300", "fsync": "off"})
    owner = urlsplit(of or environment()["DATABASE_OWNER_URL"])
    source = owner._replace(path="/", query="application_name=standby").geturl()
    copy = [server.bin / "pg_basebackup", "-D", server.data, "-X", "stream", "-c", "fast", "-R", "-d", source]
    subprocess.run([*map(str, copy)], **server.place.run_as(server.name), cwd="/", check=True, timeout=120)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            server.command(), **server.place.run_as(server.name), cwd="/", stdout=log, stderr=log
        )
    own = Standby(*(_at(environment()[name], server.port) for name in ("DATABASE_URL", "DATABASE_OWNER_URL")), process)
    try:
        assert wait_until(lambda: _answers(own.url), 60), (folder / "log").read_text()[-2000:]
        yield own
    finally:
        if process.poll() is None:
            own.kill()
        shutil.rmtree(folder, ignore_errors=True)
        if server.place.folder != folder and os.path.isdir(server.place.folder):
            shutil.rmtree(server.place.folder, ignore_errors=True)


def _at(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rsplit('@', 1)[0]}@127.0.0.1:{port}").geturl()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
