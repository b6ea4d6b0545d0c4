"""Rows as they are exported. They come as tuples with JSON as text: a million of them is read without a million model
instances, and what an export passes on unread is never parsed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import orjson
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from agentcore_site.encryption.columns import opened_stored, tables
from agentcore_site.lib.money import dollars
from experiences.models import TrajectoryRecord
from experiences.trajectories.presenters.shapes import LEARNED, LISTED
from experiences.trajectories.selectors import TrajectoryPlace, advantages_at

# In the order in which a row is written: what a list has too, and what only a whole trajectory has behind it.
_BEHIND: Final = {
    "rollout": ("query", "steps"),
    "reward_before_ranking": (*LEARNED, "components", "evidence"),
    "tokens": ("cost_usd",),
}
COLUMNS: Final = ("trajectory_id", *(name for first in LISTED for name in (first, *_BEHIND.get(first, ()))))
TEXTS: Final = ("steps", "components", "evidence")  # JSON
PLAIN: Final = (*LISTED, "query")  # as they stand in the row
_READ: Final = ("id", "organization_id", "cost_micros", *PLAIN)
_EMPTY: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)
_attributes: Final = attrgetter(*_READ)


class ExportRow(NamedTuple):
    """One row as read: the columns by name, and its JSON as text."""

    values: dict[str, Any]
    steps: str
    components: str
    evidence: str

    @property
    def size(self) -> int:
        return len(self.steps) + len(self.components) + len(self.evidence) + len(self.values["query"])


def rows_read(rows: QuerySet[TrajectoryRecord]) -> list[ExportRow]:
    """All rows of a query.

    Raises:
        KeyAway, Unopenable: steps are encrypted, and can't be read.
    """
    texts = {f"{name}_text": Cast(name, TextField()) for name in TEXTS}
    n, table = len(_READ), tables.get("trajectories")
    found = []
    for one in rows.annotate(**texts).values_list(*_READ, *texts):
        steps = one[n]
        if steps.startswith('"'):
            steps = opened_stored(table, "steps", one[1], one[0], steps)
        found.append(ExportRow(dict(zip(_READ, one, strict=False)), steps, one[n + 1], one[n + 2]))
    return found


def rows_exported(rows: Sequence[ExportRow]) -> Iterator[dict[str, Any]]:
    """Rows as programs read them, with what the update made of each; components and evidence are passed on unread
    (``orjson.Fragment``), times are ``datetime``. One query a job for all advantages.

    "reward" is what was learned from; where a reward ranked the group, components, evidence and the steps' rewards stay
    those of the payment before ("reward_before_ranking").
    """
    learned = advantages_at([place_in(row.values) for row in rows])
    for row in rows:
        json = orjson.Fragment(row.components), orjson.Fragment(row.evidence)
        yield _whole(row.values, learned, orjson.loads(row.steps), *json)


def rows_whole(rows: Sequence[ExportRow]) -> Iterator[dict[str, Any]]:
    """The same as plain values."""
    for row, whole in zip(rows, rows_exported(rows), strict=True):
        whole["components"], whole["evidence"] = orjson.loads(row.components), orjson.loads(row.evidence)
        yield _in_words(whole)


def as_exported(rows: Sequence[TrajectoryRecord]) -> Iterator[dict[str, Any]]:
    """The same of model instances."""
    values = [dict(zip(_READ, _attributes(row), strict=True)) for row in rows]
    learned = advantages_at([place_in(one) for one in values])
    for row, one in zip(rows, values, strict=True):
        # The caller may go on with the row: its steps stay as they are.
        yield _in_words(_whole(one, learned, [dict(step) for step in row.steps], row.components, row.evidence))


def _in_words(whole: dict[str, Any]) -> dict[str, Any]:
    for step in whole["steps"]:
        step["timestamp"] = step["timestamp"].isoformat()
    return whole


_place: Final = itemgetter("id", "purpose", "job_id", "iteration", "scenario", "rollout")


def place_in(values: Mapping[str, Any]) -> TrajectoryPlace:
    return TrajectoryPlace(*_place(values))


def _whole(
    values: Mapping[str, Any], learned: Mapping[Any, Any], steps: list[dict[str, Any]], components: Any, evidence: Any
) -> dict[str, Any]:
    whole = _EMPTY | learned.get(values["id"], {})
    for name in PLAIN:
        whole[name] = values[name]
    whole["trajectory_id"] = values["id"]
    for step in steps:  # seconds become a time, which JSON writes in words (ISO 8601)
        step["timestamp"] = datetime.fromtimestamp(float(step.get("timestamp") or 0.0), UTC)
    whole["steps"] = steps
    whole["components"], whole["evidence"] = components, evidence
    whole["cost_usd"] = dollars(values["cost_micros"])
    return whole
