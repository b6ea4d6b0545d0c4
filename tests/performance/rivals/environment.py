"""The bench's own virtual environment: what others built is measured as it is published, and is no dependency."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = HERE / "requirements.txt"
MINUTES: Final = 20  # that one method may take in one world


def environment() -> Path:
    """The interpreter with the pinned packages; made when it is first asked for.

    Raises:
        subprocess.CalledProcessError: they can't be installed here.
    """
    version = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentcore-bench" / f"rivals-{version}"
    python, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True, capture_output=True)
        ready.touch()
    return python


def optimized(script: str, task: Mapping[str, Any]) -> str:
    """The prompt that a script of this folder ends with.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    done = subprocess.run(
        [str(environment()), str(HERE / script)],
        input=json.dumps(task),
        text=True,
        capture_output=True,
        timeout=60 * MINUTES,
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
    )
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-600:]}")
    return str(json.loads(done.stdout)["prompt"])
