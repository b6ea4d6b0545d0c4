"""Processor time of processes, from ``/proc``: Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all that descend from it. One that ends meanwhile is left out, with what it had below."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def seconds_of(pid: int) -> float:
    """Processor seconds of a process, its living children and those that it has waited for; to 10 ms."""
    return sum(map(_own, family(pid)))


def _own(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended: its parent counts it
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS  # utime, stime, cutime, cstime


def on_processor(pid: int) -> float:
    """Seconds that the main thread of a process was on a processor, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def proportional_mb(pid: int) -> float:
    """PSS: shared pages are divided among those that share them. 0 where the process has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
