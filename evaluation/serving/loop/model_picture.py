"""Picture of what a language model learned in its demo: bars in the terminal, and the same as an SVG."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

WIDTH: Final = 78
# Rich's template loads a font from another host.
FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def picture_shown(title: str, groups: Sequence[Sequence[tuple[str, float]]], path: Path) -> None:
    """Shows groups of shares (0 to 1) with their names on standard error, and writes them to ``path``."""
    console = Console(stderr=True, record=True, width=WIDTH, highlight=False)
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(width=44)
    table.add_column(justify="right")
    colours = ("cyan", "green", "magenta")
    for number, group in enumerate(groups):
        if number:
            table.add_row()
        for name, share in group:
            table.add_row(name, Bar(1.0, 0.0, share, color=colours[number % len(colours)]), f"{share:.0%}")
    console.print(table)
    sys.stderr.flush()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FONTS.sub("", console.export_svg(title=title, unique_id="model")), encoding="utf-8")
