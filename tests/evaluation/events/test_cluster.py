"""Three servers and kills at random moments: what was committed is in the streams once, and taken once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_site import env
from tests.support.up import environment


@pytest.mark.alone
def test_kills_of_leader_relay_consumers_and_database_lose_and_double_nothing(tmp_path: Path) -> None:
    """Three rounds; the script by itself makes twenty."""
    command = [sys.executable, "-m", "tests.performance.cluster", "3"]
    done = subprocess.run(command, cwd=env.ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=480)
    assert done.stdout, done.stderr[-3_000:]
    assert done.returncode == 0, json.loads(done.stdout.splitlines()[-1])
