"""RabbitMQ for tests: nodes of a cluster on this machine, each with a folder of its own, by the system's package."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcore_site.embedded.ports import answers, free_port, wait_until

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
READY_SECONDS = 120.0
# Little of it: a node's memory is one page of a table, and a test has no plugins.
SETTINGS = """
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
default_user = agentcore
default_pass = {password}
log.console = true
log.console.level = warning
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 256MB
"""


class RabbitNode:
    """One node: killed and started again on its folder."""

    def __init__(self, folder: Path, name: str, ports: tuple[int, int, int], password: str) -> None:
        self.port, distribution, epmd = ports
        self.name, self.password, self.folder = f"{name}@localhost", password, folder / name
        self.folder.mkdir()
        (self.folder / "rabbitmq.conf").write_text(SETTINGS.format(port=self.port, password=password))
        (self.folder / "enabled_plugins").write_text("[].")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),  # where the cookie of the cluster is
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.folder),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://agentcore:{self.password}@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """Raises AssertionError with the end of its log."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [SERVER], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        ready = wait_until(lambda: answers(self.port), READY_SECONDS)
        assert ready, (self.folder / "log").read_text()[-3000:]

    def kill(self) -> None:
        """kill -9 of the node: nothing is said to others."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def control(self, *words: str) -> str:
        command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--node", self.name, *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=READY_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def rabbitmq(nodes: int = 1) -> Iterator[list[RabbitNode]]:
    """A cluster of ``nodes`` nodes that are up."""
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
    password, epmd = secrets.token_hex(12), free_port(0)
    cookie = folder / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(20))
    cookie.chmod(0o400)
    ports = [(free_port(0), free_port(0), epmd) for _ in range(nodes)]
    found = [RabbitNode(folder, f"rabbit{index}", three, password) for index, three in enumerate(ports)]
    try:
        for node in found:
            node.start()
        for node in found[1:]:
            for words in (["stop_app"], ["reset"], ["join_cluster", found[0].name], ["start_app"]):
                node.control(*words)
        yield found
    finally:
        for node in found:
            node.kill()
        subprocess.run(["epmd", "-port", str(epmd), "-kill"], capture_output=True, timeout=10)
        shutil.rmtree(folder, ignore_errors=True)
