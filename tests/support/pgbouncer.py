"""PgBouncer in transaction mode before the test's database: what companies put between many hosts and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agentcore_site.embedded.ports import answers, free_port, wait_until
from tests.support.workers import environment

CONNECTIONS = 4  # to the server: fewer than its clients, so that they really share


def prepare(folder: Path, database_url: str, port: int, connections: int = CONNECTIONS) -> list[str]:
    """Writes its settings into ``folder``. Returns the command that starts it on ``port``."""
    url = urlsplit(database_url)
    (folder / "users.txt").write_text(f'"{unquote(url.username or "")}" "{unquote(url.password or "")}"\n')
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": folder / "users.txt",
        "pool_mode": "transaction",
        "default_pool_size": connections,
        "max_client_conn": 200,
        "logfile": folder / "log",
    }
    lines = [f"* = host={url.hostname} port={url.port}", "", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (folder / "pgbouncer.ini").write_text("[databases]\n" + "\n".join(lines) + "\n")
    command = ["pgbouncer", str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # it refuses to be root
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "nobody")
        command[1:1] = ["-u", "nobody"]
    return command


def through(database_url: str, port: int) -> str:
    """The address of the database behind the pooler."""
    url = urlsplit(database_url)
    return url._replace(netloc=f"{url.netloc.rsplit('@', 1)[0]}@127.0.0.1:{port}").geturl()


@contextmanager
def pgbouncer() -> Iterator[str]:
    """Its address, for the database and the role of the tests."""
    url = environment()["DATABASE_URL"]
    folder, port = Path(tempfile.mkdtemp(prefix="pgbouncer-")), free_port(0)
    command = prepare(folder, url, port)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: answers(port), 15), (folder / "log").read_text()
        yield through(url, port)
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)
