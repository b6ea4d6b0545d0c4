"""Prints, at the end of a run, what the walk through the doors counted (``tests/test_doors_walk.py``), also where it
ran in a process of xdist."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

PROPERTY: Final = "doors"
ROLES: Final = ("stakeholder", "developer", "operator", "admin", "superuser")
FOUND: Final = ("asked", "refused", "nothing", "leaks")
Counts = Counter[tuple[str, str, str]]  # (door, right, what)


def as_property(counts: Counts) -> tuple[str, str]:
    return PROPERTY, json.dumps([[*key, n] for key, n in sorted(counts.items())])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counts = Counter()
    for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())):
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                counts.update({(door, right, what): n for door, right, what, n in json.loads(value)})
    if counts:
        terminalreporter.section("doors: allowed of asked, by role; and what strangers with that role found")
        for line in lines(counts):
            terminalreporter.write_line(line)


def lines(counts: Counts) -> list[str]:
    head = f"{'door':9}{'right':22}" + "".join(f"{role:>13}" for role in ROLES)
    found = [f"{head} | {'strangers asked':>15}{'refused':>9}{'nothing':>9}{'leaks':>7}"]
    totals: Counter[str] = Counter()
    for door, right in sorted({key[:2] for key in counts}):
        row = {what: n for (one, other, what), n in counts.items() if (one, other) == (door, right)}
        asked, refused, nothing, leaks = (row.get(f"stranger {one}", 0) for one in FOUND)
        totals.update({"asked": asked, "refused": refused, "nothing": nothing, "leaks": leaks})
        totals["own"] += sum(row.get(f"{role} asked", 0) for role in ROLES)
        cells = "".join(f"{_cell(row, role):>13}" for role in ROLES)
        found.append(f"{door:9}{right:22}{cells} | {asked:>15}{refused:>9}{nothing:>9}{leaks:>7}")
    found.append(
        f"{totals['own']:,} requests to one's own organisation, {totals['asked']:,} of strangers:"
        f" {totals['refused']:,} refused, {totals['nothing']:,} answered with nothing of ours, {totals['leaks']} leaks"
    )
    return found


def _cell(row: dict[str, int], role: str) -> str:
    response = row.get(f"{role} asked")
    return "" if response is None else f"{row.get(f'{role} allowed', 0)}/{response}"
