"""A pytest plugin that says where a long run's time went: the files that took most of it, by phase.

Loaded by `make test`. With pytest's own ``--durations=N`` it is the place to look before a test is added to a file that
takes long already. Seconds are those of the clock, summed over all processes of the run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

SHOWN: Final = 15
LONG: Final = 60.0  # seconds of tests, from which on a run is worth a table
PHASES: Final = ("setup", "call", "teardown")

_took: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when in PHASES:  # a process that died reports a phase of its own
        _took[report.location[0]][report.when] += report.duration


@pytest.hookimpl(tryfirst=True)  # above the names of what failed, which end the output
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    whole = sum(sum(phases.values()) for phases in _took.values())
    if whole < LONG:
        return
    terminalreporter.section(f"{whole:,.0f} s of tests: the {SHOWN} files that took longest")
    terminalreporter.write_line(f"{'whole':>8}" + "".join(f"{phase:>10}" for phase in PHASES) + "  file")
    for file, phases in sorted(_took.items(), key=lambda one: -sum(one[1].values()))[:SHOWN]:
        seconds = "".join(f"{phases[phase]:>10.1f}" for phase in PHASES)
        terminalreporter.write_line(f"{sum(phases.values()):>8.1f}{seconds}  {file}")
