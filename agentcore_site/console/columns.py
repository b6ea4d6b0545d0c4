"""The columns of lists, as a person chose them in one browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest


@dataclass(frozen=True)
class ColumnChoice:
    key: str
    title: str
    shown: bool


@dataclass(frozen=True)
class ListColumns:
    """The columns of one list that may be left out. ``page``: the name of its address. ``names``: titles by key."""

    key: str
    page: str
    names: Mapping[str, str]

    @property
    def cookie(self) -> str:
        """The cookie names the columns that are left out, so that a new column is shown."""
        return f"{self.key}_without"

    def context(self, request: HttpRequest) -> dict[str, Any]:
        """For a template: ``choices`` for the menu, and ``without``, which is true for each column that is left out."""
        left_out = request.COOKIES.get(self.cookie, "").split(".")
        choices = [ColumnChoice(key, title, key not in left_out) for key, title in self.names.items()]
        return {"columns": self, "choices": choices, "without": {one.key: not one.shown for one in choices}}

    def as_cookie(self, shown: Iterable[str]) -> str:
        kept = set(shown)
        return ".".join(key for key in self.names if key not in kept)


def _named(titles: str) -> dict[str, str]:
    return {title.partition(" ")[0].lower(): title for title in titles.split(", ")}


LISTS: Final = {
    one.key: one
    for one in (
        ListColumns("jobs", "training:jobs", _named("Status, Success, Verdict, Iterations, Cost, Started")),
        ListColumns(
            "lessons",
            "experiences:library",
            _named("Agent, Job, Status, Effect, Weight, Tokens, Rollouts, Learned"),
        ),
        ListColumns("datasets", "training:datasets", _named("Domain, Origin, Queries, Version, Created")),
        ListColumns("traces", "serving:traces", _named("Status, Release, Feedback, Reward, Cost, Duration, Time")),
    )
}
