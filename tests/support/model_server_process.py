"""A real model server (docs/weights.md) in a process of its own, over a model made at random."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self


class ModelServerProcess:
    """``with ModelServerProcess(folder) as server: server.base_url``. Ends with the test, or when it is killed."""

    def __init__(self, model: Path, *options: str, token: str = "let-me-in", port: int = 0) -> None:
        self.command = [sys.executable, "manage.py", "model_server", str(model), "--port", str(port), "--parent"]
        self.command += options
        self.token, self.base_url = token, ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        known = os.environ | {
            "WEIGHTS_TOKEN": self.token,
            "TINKER_API_KEY": self.token,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, env=known, **pipes)  # type: ignore[call-overload]
        assert self.process is not None and self.process.stdout is not None
        self.base_url = self.process.stdout.readline().strip()
        assert self.base_url.startswith("http"), self.base_url
        return self

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2].partition("/")[0])

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
