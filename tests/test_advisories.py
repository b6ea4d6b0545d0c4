"""`.ci/advisories`: a known vulnerability fails, an index that can't be asked does not, and both are said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentcore_site import env

FINE = {"name": "urllib3", "version": "2.8.0", "vulns": []}
KNOWN = {"name": "yarl", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
LEFT = {"name": "zss", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("answer", "ended", "said"),
    [
        ({"dependencies": [FINE]}, 0, "1 of 1 packages checked, 0 advisories"),
        ({"dependencies": [FINE, KNOWN]}, 1, "yarl 1.0: PYSEC-1, mended in 1.1"),
        ({"dependencies": [KNOWN, LEFT]}, 1, "NOT CHECKED: the index has no advisories of zss"),
        ({"dependencies": [LEFT]}, 0, "NOT CHECKED: the index has no advisories of all packages"),
        (None, 0, "NOT CHECKED: advisories of requirements.txt can't be had here"),
    ],
)
def test_a_known_vulnerability_fails_and_a_silent_index_does_not(
    tmp_path: Path, answer: Any, ended: int, said: str
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{'' if answer is None else json.dumps(answer)}\nEND\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{env.ROOT / '.venv/bin'}:/usr/bin:/bin"
    done = subprocess.run(
        [env.ROOT / ".ci/advisories"], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stderr) == (ended, True), done.stderr
