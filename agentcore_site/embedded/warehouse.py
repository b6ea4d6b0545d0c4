"""The warehouse of one machine: ClickHouse's interface over chdb, in a process of its own, since only one process may
open its folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from agentcore_site import env
from agentcore_site.embedded.ports import answers
from agentcore_site.lib.service_paths import CannotStart

PREFERRED_PORT = 42230


class EmbeddedWarehouse:
    name = "warehouse"

    def __init__(self, data_dir: Path, secrets_folder: Path, port: int) -> None:
        if importlib.util.find_spec("chdb") is None:
            raise CannotStart("chdb is not installed: pip install 'agentcore[warehouse]', or set CLICKHOUSE_URL.")
        self.port, self.folder = port, data_dir / "warehouse"
        self.folder.mkdir(exist_ok=True, mode=0o700)
        self.password_file = secrets_folder / "warehouse_password"

    @property
    def password(self) -> str:
        return env.kept_secret(self.password_file)

    def url(self) -> str:
        return f"http://default:{self.password}@127.0.0.1:{self.port}/agentcore"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "evaluation.warehouse.clickhouse.server", str(self.folder), str(self.port)]

    def ready(self) -> bool:
        return answers(self.port)
