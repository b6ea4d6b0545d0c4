"""Failures of a job grouped by reason: how many, since when, and whether they become rarer."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Count, IntegerField, Max, Min, QuerySet, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from agentcore_site.lib.statistics import Interval, wilson_interval
from experiences.models import TrajectoryRecord

PARTS: Final = 12  # of a job's iterations, for the trend
KINDS: Final = {
    "error": "An error",
    "cut_off": "Cut off at the limit of steps",
    "tool": "A tool failed last",
    "wrong_answer": "Wrong answer",
    "no_answer": "Ended without an answer",
    "no_step": "No step was taken",
    "encrypted": "Not known: the steps are encrypted",
}
# The kind, and behind a colon what it was: the boundary that failed, or the tool. "" of a success.
REASON: Final = """CASE
 WHEN {t}.success THEN ''
 WHEN {t}.error <> '' THEN 'error:' || left(split_part({t}.error, ':', 1), 60)
 WHEN {t}.n_steps = 0 THEN 'no_step'
 WHEN jsonb_typeof({t}.steps) <> 'array' THEN CASE WHEN {t}.truncated THEN 'cut_off' ELSE 'encrypted' END
 WHEN {t}.truncated THEN concat_ws(':', 'cut_off', CASE WHEN {t}.steps -> -1 -> 'result' ->> 'success' = 'false'
   THEN nullif({t}.steps -> -1 -> 'action' ->> 'tool', '') END)
 WHEN {t}.steps -> -1 -> 'action' ->> 'type' = 'answer' THEN 'wrong_answer'
 WHEN {t}.steps -> -1 -> 'result' ->> 'success' = 'false'
   THEN concat_ws(':', 'tool', nullif({t}.steps -> -1 -> 'action' ->> 'tool', ''))
 ELSE 'no_answer' END""".format(t="experiences_trajectory")


@dataclass
class FailureGroup:
    """Trajectories that failed for one reason. ``shares``: of all trajectories of each part of the job, in order; None
    where a part has none. The interval is that of independent rollouts: those of one query are alike, so it is rather
    too narrow."""

    reason: str
    total: int  # of the job's trajectories
    n: int = 0
    first: int = 0
    last: int = 0
    example: uuid.UUID | None = None
    counts: dict[int, int] = field(default_factory=dict)
    shares: list[float | None] = field(default_factory=list)
    trend: str = ""

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    @property
    def detail(self) -> str:
        return self.reason.partition(":")[2]

    @property
    def title(self) -> str:
        """As a sentence without a full stop."""
        kind, _, detail = self.reason.partition(":")
        if kind == "cut_off" and detail:
            return f"Cut off at the limit of steps while {detail} failed"
        if kind == "tool" and detail:
            return f"{detail} failed last"
        return f"Error: {detail}" if kind == "error" else KINDS.get(kind, self.reason)

    @property
    def share(self) -> float:
        return self.n / self.total

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.n, self.total)


def with_reason(rows: QuerySet[TrajectoryRecord], reason: str) -> QuerySet[TrajectoryRecord]:
    """The failures of one reason. No index serves it: ask it of a job."""
    return rows.filter(success=False).alias(why=_reason()).filter(why=reason)


def failure_groups(rows: QuerySet[TrajectoryRecord], iterations: int) -> tuple[list[FailureGroup], int]:
    """The groups of these trajectories, the largest first, and how many trajectories there are. Two queries.
    ``iterations``: how many the job has, of which ``PARTS`` parts are made."""
    size = max(1, -(-iterations // PARTS))
    part = RawSQL("experiences_trajectory.iteration / %s", [size], output_field=IntegerField())
    counted = rows.order_by().annotate(reason=_reason(), part=part).values("reason", "part")
    found = list(
        counted.annotate(
            n=Count("id"), first=Min("iteration"), last=Max("iteration"), example=Max(Cast("id", TextField()))
        )
    )
    per_part: dict[int, int] = {}
    for one in found:
        per_part[one["part"]] = per_part.get(one["part"], 0) + one["n"]
    total = sum(per_part.values())
    groups = {one["reason"]: FailureGroup(one["reason"], total) for one in found if one["reason"]}
    for one in sorted(found, key=lambda one: one["part"]):
        if group := groups.get(one["reason"]):
            _add(group, one)
    for group in groups.values():
        group.shares = [_share(group, at, per_part) for at in range(max(per_part, default=-1) + 1)]
        group.trend = trend(group, per_part)
    return sorted(groups.values(), key=lambda one: (-one.n, one.reason)), total


def trend(group: FailureGroup, per_part: dict[int, int]) -> str:
    """ "rarer" or "more often" where the intervals of the job's halves don't overlap; else "", as nothing is shown."""
    parts = sorted(per_part)
    halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    early, late = (_of_half(group, half, per_part) for half in halves)
    if early is None or late is None:
        return ""
    if late.high < early.low:
        return "rarer"
    return "more often" if late.low > early.high else ""


def _of_half(group: FailureGroup, half: Sequence[int], per_part: dict[int, int]) -> Interval | None:
    n = sum(per_part[at] for at in half)
    return wilson_interval(sum(group.counts.get(at, 0) for at in half), n) if n else None


def _share(group: FailureGroup, at: int, per_part: dict[int, int]) -> float | None:
    return group.counts.get(at, 0) / per_part[at] if per_part.get(at) else None


def _add(group: FailureGroup, one: Mapping[str, Any]) -> None:
    group.first = one["first"] if not group.n else min(group.first, one["first"])
    group.last = max(group.last, one["last"])
    group.n += one["n"]
    group.counts[one["part"]] = one["n"]
    group.example = uuid.UUID(one["example"])  # of the latest part


def _reason() -> RawSQL:
    return RawSQL(REASON, (), output_field=TextField())  # noqa: S611


def kinds_of(groups: Iterable[FailureGroup]) -> list[tuple[str, str]]:
    """The kinds that there are, with their titles."""
    there = {group.kind for group in groups}
    return [(kind, title) for kind, title in KINDS.items() if kind in there]
