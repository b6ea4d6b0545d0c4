"""Rows as they are exported. They come as tuples with JSON as text: a million of them is read without a million model
instances, and what an export passes on unread is never parsed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import orjson
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from agentcore_site.encryption.columns import opened_stored, tables
from agentcore_site.lib.money import dollars
from experiences.models import Annotation, TrajectoryRecord
from experiences.trajectories.annotations.selectors import annotations_by_trajectory
from experiences.trajectories.presenters.columns import LEARNED, LISTED
from experiences.trajectories.selectors import TrajectoryPlace, advantages_at

# In the order in which a row is written: what a list has too, and what only a whole trajectory has behind it.
_BEHIND: Final = {
    "rollout": ("query", "steps"),
    "reward_before_ranking": (*LEARNED, "components", "evidence"),
    "tokens": ("cost_usd",),
}
COLUMNS: Final = ("trajectory_id", *(name for first in LISTED for name in (first, *_BEHIND.get(first, ()))))
TEXTS: Final = ("steps", "components", "evidence")  # JSON
PLAIN: Final = (*LISTED, "query")  # as the row has them
LATEST: Final = 2**33  # seconds since the epoch, up to which ``_moment`` writes a time itself
TIME: Final = "created_at"
_READ: Final = ("id", "organization_id", "month", "cost_micros", *(one for one in PLAIN if one != TIME), TIME)
_EMPTY: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)
_HIDDEN: Final = tuple(name for name in _READ if name not in _EMPTY)
_NOTHING: Final[Mapping[str, Any]] = {}
_attributes: Final = attrgetter(*_READ)


class ExportRow(NamedTuple):
    """One row as read: the columns by name, its JSON as text, what the update made of it, and what people noted."""

    values: dict[str, Any]
    steps: str
    components: str
    evidence: str
    learned: Mapping[str, Any]
    annotations: Sequence[Annotation]

    @property
    def size(self) -> int:
        return len(self.steps) + len(self.components) + len(self.evidence) + len(self.values["query"])


def rows_read(rows: QuerySet[TrajectoryRecord]) -> list[ExportRow]:
    """All rows of a query, whole: what writes them asks the database no more. One query for all annotations, one a job
    for all advantages.

    Raises:
        KeyUnavailable, Unopenable: steps are encrypted, and can't be read.
    """
    texts = {f"{name}_text": Cast(name, TextField()) for name in (TIME, *TEXTS)}
    n, table = len(_READ), tables.get("trajectories")
    found = list(rows.annotate(**texts).values_list(*_READ[:-1], *texts))
    columns = [dict(zip(_READ, one, strict=False)) for one in found]
    for values in columns:
        values[TIME] = datetime.fromisoformat(values[TIME])  # ten times as fast as Django's reading of it
    learned = advantages_at([place_in(column) for column in columns])
    noted = annotations_by_trajectory((column["month"], column["id"]) for column in columns) if columns else {}
    whole = []
    for one, values in zip(found, columns, strict=True):
        id, steps = values["id"], one[n]
        if steps.startswith('"'):
            steps = opened_stored(table, "steps", values["organization_id"], id, steps)
        notes = noted.get(id, ()) if noted else ()
        whole.append(ExportRow(values, steps, one[n + 1], one[n + 2], learned.get(id, _NOTHING), notes))
    return whole


def rows_exported(rows: Sequence[ExportRow]) -> Iterator[dict[str, Any]]:
    """Rows as programs read them, with what the update made of each; components and evidence are passed on unread
    (``orjson.Fragment``), times of steps are in words (ISO 8601).

    "reward" is what was learned from; where a reward ranked the group, components, evidence and the steps' rewards stay
    those of the payment before ("reward_before_ranking").
    """
    for row in rows:
        json = orjson.Fragment(row.components), orjson.Fragment(row.evidence)
        yield _whole(row.values, row.learned, orjson.loads(row.steps), *json)


def rows_whole(rows: Sequence[ExportRow]) -> Iterator[dict[str, Any]]:
    """The same as plain values."""
    for row, whole in zip(rows, rows_exported(rows), strict=True):
        whole["components"], whole["evidence"] = orjson.loads(row.components), orjson.loads(row.evidence)
        yield whole


def as_exported(rows: Sequence[TrajectoryRecord]) -> Iterator[dict[str, Any]]:
    """The same of model instances."""
    values = [dict(zip(_READ, _attributes(row), strict=True)) for row in rows]
    learned = advantages_at([place_in(value) for value in values])
    for row, one in zip(rows, values, strict=True):
        # The caller may go on with the row: its steps stay as they are.
        steps = [dict(step) for step in row.steps]
        yield _whole(one, learned.get(one["id"], _NOTHING), steps, row.components, row.evidence)


def jsonl_line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


_place: Final = itemgetter("id", "purpose", "job_id", "iteration", "scenario", "rollout")


def place_in(values: Mapping[str, Any]) -> TrajectoryPlace:
    return TrajectoryPlace(*_place(values))


def _whole(
    values: dict[str, Any], learned: Mapping[str, Any], steps: list[dict[str, Any]], components: Any, evidence: Any
) -> dict[str, Any]:
    whole = {**_EMPTY, **values, **learned}  # in the order of columns; what is in none comes last, and goes
    for name in _HIDDEN:
        del whole[name]
    whole["trajectory_id"] = values["id"]
    for step in steps:
        step["timestamp"] = _moment(float(step.get("timestamp") or 0.0))
    whole["steps"] = steps
    whole["components"], whole["evidence"] = components, evidence
    whole["cost_usd"] = dollars(values["cost_micros"])
    return whole


def _moment(seconds: float) -> str:
    """As ``datetime.isoformat`` in UTC, which takes three times as long: a step has one."""
    second = int(seconds)
    micros = round((seconds - second) * 1e6)
    if not (0 <= second < LATEST and 0 <= micros < 1_000_000):
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    return f"{_second(second)}.{micros:06}+00:00" if micros else f"{_second(second)}+00:00"


@lru_cache(maxsize=256)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]
