"""Programs that the documentation shows, taken from the page as a reader copies them, and run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from agentcore_site import env

API = env.ROOT / "docs" / "api.md"


def example(heading: str, language: str, page: Path = API) -> str:
    """The last block in that language of a section of the page."""
    section = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return str(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1])


def ran(command: list[str], folder: Path, **given: str) -> str:
    """The output of a program that has only these environment variables."""
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **given},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
