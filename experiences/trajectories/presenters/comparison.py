"""Rollouts of one query as columns: steps aligned, and where each parts from the best one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import orjson

from experiences.models import TrajectoryRecord
from experiences.trajectories.presenters.shape_of_steps import answer_of


@dataclass
class Column:
    """One rollout. ``parts_at`` is the first step (from 0) at which it does something else than the best rollout;
    None for the best one itself and for those that never part from it."""

    row: TrajectoryRecord
    advantage: float | None = None
    advantages: list[float] = field(default_factory=list)
    best: bool = False
    parts_at: int | None = None


@dataclass(frozen=True)
class Cell:
    """One step of one rollout; ``step`` is None after its end."""

    step: Mapping[str, Any] | None
    advantage: float | None = None
    parts: bool = False

    @property
    def said(self) -> str:
        """The text of the step; "" where the same came back."""
        words = words_of(self.step) if self.step else ""
        return "" if words == self.came else words

    @property
    def came(self) -> str:
        """The error, or what came back."""
        result = self.step.get("result", {}) if self.step else {}
        output = result.get("output")
        return str(result.get("error") or ("" if output is None else output))


def columns(rows: Sequence[TrajectoryRecord], learned: Mapping[uuid.UUID, Mapping[str, Any]]) -> list[Column]:
    """The rollouts in their order. The best is the one with the highest reward, the first of equals."""
    found = []
    for row in rows:
        of_row = learned.get(row.id, {})
        found.append(Column(row, of_row.get("advantage"), list(of_row.get("step_advantages", []))))
    scored = [column for column in found if column.row.reward is not None]
    if scored and len(found) > 1:
        best = max(scored, key=lambda column: column.row.reward or 0.0)
        best.best = True
        script = doings(best.row)
        for column in found:
            if column is not best:
                column.parts_at = parting(script, doings(column.row))
    return found


def best_first(found: Sequence[Column]) -> list[Column]:
    """The best rollout in front, where a group of many is looked at without scrolling; the others in their order."""
    return sorted(found, key=lambda column: not column.best)


def first_parting(found: Sequence[Column]) -> int | None:
    """The first step (from 0) at which one of them does something else than the best; None where none does."""
    return min((column.parts_at for column in found if column.parts_at is not None), default=None)


def doings(row: TrajectoryRecord) -> list[str]:
    """A rollout's actions, step by step, as comparable texts."""
    return [doing(step) for step in row.steps]


def doing(step: Mapping[str, Any]) -> str:
    """Two answers are the same where they say the same, two calls where they pass the same parameters."""
    action = step.get("action", {})
    worked = "" if step.get("result", {}).get("success") else " failed"
    return f"{action.get('type', '')} {action.get('tool') or ''}{worked} {words_of(step)}"


def words_of(step: Mapping[str, Any]) -> str:
    """The text of an answer, or what a call passed."""
    parameters = step.get("action", {}).get("parameters")
    return answer_of([step]) or (orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS).decode() if parameters else "")


def parting(script: Sequence[str], other: Sequence[str]) -> int | None:
    """The first position at which two scripts differ, or at which only one of them goes on."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(script, other, strict=False)))
    return None if same == len(script) == len(other) else same


def aligned(found: Sequence[Column], *, limit: int) -> list[list[Cell]]:
    """Rows of cells, one row a step: what every column did there."""
    n = min(max((len(column.row.steps) for column in found), default=0), limit)
    return [[_cell(column, i) for column in found] for i in range(n)]


def _cell(column: Column, i: int) -> Cell:
    parts = column.parts_at == i
    if i >= len(column.row.steps):
        return Cell(None, parts=parts)
    advantage = column.advantages[i] if i < len(column.advantages) else None
    return Cell(column.row.steps[i], advantage, parts)
