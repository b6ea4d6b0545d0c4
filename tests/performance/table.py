"""The table of figures: each a ratio to its stated limit, from the same run."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """``ratio`` is the figure divided by its limit: up to 1 it holds, on any machine."""

    id: str
    what: str
    value: str
    limit: str
    ratio: float

    @property
    def holds(self) -> bool:
        return self.ratio <= 1.0


def at_most(id: str, what: str, value: float, limit: float, unit: str, *, digits: int = 2) -> Figure:
    return Figure(id, what, f"{value:,.{digits}f} {unit}", f"≤ {limit:g} {unit}", value / limit)


def at_least(id: str, what: str, value: float, limit: float, unit: str, *, digits: int = 2) -> Figure:
    ratio = limit / value if value > 0 else float("inf")
    return Figure(id, what, f"{value:,.{digits}f} {unit}", f"≥ {limit:g} {unit}", ratio)


def show(figures: list[Figure]) -> None:
    table = Table(title="AgentCore: measured figures (ratio ≤ 1 holds)")
    for column in ("", "figure", "measured", "limit", "ratio", ""):
        table.add_column(column, justify="right" if column in {"measured", "limit", "ratio"} else "left")
    for figure in figures:
        verdict = "holds" if figure.holds else "FALLS SHORT"
        table.add_row(figure.id, figure.what, figure.value, figure.limit, f"{figure.ratio:.2f}", verdict)
    Console(width=150).print(table)
