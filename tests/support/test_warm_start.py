"""A process that begins loaded is one like any other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from agentcore_site import env
from tests.support.warm_start import OF_THE_MOMENT, Forked, WarmStart
from tests.support.workers import environment, eventually

pytestmark = pytest.mark.django_db

PROGRAM = """
import atexit, json, os, sys, threading, time
from django.conf import settings
from django.db import connections
atexit.register(print, "the end", flush=True)
print(json.dumps({
    "arguments": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "test": os.environ.get("PYTEST_CURRENT_TEST"),
    "variables": sorted(os.environ), "group": os.getpgid(0), "pid": os.getpid(), "threads": threading.active_count(),
    "database": settings.DATABASES["default"]["NAME"],
    "connected": [one.alias for one in connections.all(initialized_only=True) if one.connection is not None],
    "sockets": [n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}").count("socket:")],
}), flush=True)
if sys.argv[1] == "stays":
    time.sleep(60)
sys.exit(7)
"""


@pytest.fixture
def forked(tmp_path: Path) -> Iterator[dict[str, Forked]]:
    """Two processes that were forked: one ends by itself, the other stays."""
    program, warm = tmp_path / "program.py", WarmStart(str(env.ROOT))
    program.write_text(PROGRAM)
    assert warm.process([str(program), "first"], environment(), str(tmp_path / "log")) is None
    values = {}
    for name in ("ends", "stays"):
        values[name] = warm.process([str(program), name], environment() | {OF_THE_MOMENT: name}, str(tmp_path / name))
    yield values
    for one in values.values():
        one.kill()
    warm.end()


def said(path: Path) -> Any:
    return json.loads(eventually(lambda: path.exists() and path.read_text(), seconds=60, why="it says what it is"))


@pytest.mark.thorough(reason="each test with a fleet begins processes so")
def test_a_forked_process_is_one_like_any_other(forked: dict[str, Forked], tmp_path: Path) -> None:
    one = forked["stays"]
    result = said(tmp_path / "stays")
    assert (result["arguments"], result["name"], result["folder"]) == (["stays"], "__main__", str(env.ROOT))
    assert result["pid"] == result["group"] == one.pid and one.poll() is None
    assert result["variables"] == sorted(environment()) and result["test"] == "stays"
    assert result["database"] == connection.settings_dict["NAME"]
    assert (result["connected"], result["sockets"], result["threads"]) == ([], [], 1)


@pytest.mark.thorough(reason="each test with a fleet ends processes so")
def test_the_end_of_a_forked_process_is_received(forked: dict[str, Forked], tmp_path: Path) -> None:
    assert forked["ends"].wait(60) == forked["ends"].poll() == 7
    assert (tmp_path / "ends").read_text().endswith("the end\n")
    said(tmp_path / "stays")
    os.killpg(forked["stays"].pid, signal.SIGKILL)
    eventually(lambda: forked["stays"].poll() is not None, seconds=10)
    assert forked["stays"].returncode == -signal.SIGKILL
    forked["stays"].terminate()  # its parent is gone


def test_another_environment_is_loaded_by_itself(tmp_path: Path) -> None:
    warm = WarmStart(str(env.ROOT))
    for name in ("1", "2"):
        assert warm.process(["program"], environment() | {"TRAINING_JOBS_PER_USER": name}, "log") is None
    warm.end()
