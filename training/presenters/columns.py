"""The columns of the list of jobs, as a person chose them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

COOKIE: Final = "jobs_without"  # the columns that are left out: a new column is shown
NAMES: Final = {
    "status": "Status",
    "success": "Success",
    "verdict": "Verdict",
    "iterations": "Iterations",
    "cost": "Cost",
    "started": "Started",
}


@dataclass(frozen=True)
class ColumnChoice:
    key: str
    title: str
    shown: bool


def column_choices(request: HttpRequest) -> list[ColumnChoice]:
    without = request.COOKIES.get(COOKIE, "").split(".")
    return [ColumnChoice(key, title, key not in without) for key, title in NAMES.items()]


def as_cookie(shown: Iterable[str]) -> str:
    """The columns that are left out where these are shown."""
    kept = set(shown)
    return ".".join(key for key in NAMES if key not in kept)
