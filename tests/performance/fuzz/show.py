"""The table of all that was asked, by interface."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.performance.fuzz.tally import Tally


def table(tallies: list[Tally], seconds: float, traces: int) -> None:
    """``traces``: stack traces in the server's log."""
    shown = Table(title=f"Hostile requests: {seconds:.0f} s, {traces} stack traces in the server's log")
    for column in ("interface", "requests", "5xx", "undocumented", "foreign names", "429", "not sent"):
        shown.add_column(column, justify="left" if column == "interface" else "right")
    for name in dict.fromkeys(tally.interface for tally in tallies):
        shown.add_row(name, *figures([tally for tally in tallies if tally.interface == name]))
    shown.add_row("all", *figures(tallies))
    Console(width=130).print(shown)


def figures(tallies: list[Tally]) -> list[str]:
    wrong = sum((tally.wrong for tally in tallies), Counter[str]())
    sums = [sum(tally.requests for tally in tallies), wrong["5xx"], wrong["undocumented"], wrong["foreign"]]
    sums += [sum(tally.limited for tally in tallies), sum(tally.unsent for tally in tallies)]
    return [f"{one:,}" for one in sums]
