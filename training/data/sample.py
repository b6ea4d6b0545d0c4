"""Sample data: messages to an invented shop, each with the team that answers. Which team is right follows from rules of
the shop that no model can know, so that an agent has something to learn (docs/datasets.md has the rules)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from training.data.uploads import read_rows

SAMPLE: Final = Path(__file__).with_name("sample.csv")


def sample_rows() -> list[dict[str, Any]]:
    """The cleaned rows of the file, as of an upload."""
    return read_rows(SAMPLE.name, SAMPLE.read_bytes())
