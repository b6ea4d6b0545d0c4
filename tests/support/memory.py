"""The peak of this process's memory, also of libraries in C, which ``tracemalloc`` does not see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLEAR = Path("/proc/self/clear_refs")
measured = pytest.mark.skipif(not CLEAR.exists(), reason="only Linux measures the peak of a process")


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes by which the memory grows at most while ``work`` runs."""
    CLEAR.write_text("5")  # the kernel begins another peak
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
