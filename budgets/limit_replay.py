"""The calls that another limit would have refused: a budget's ledger, replayed in its order.

A call is refused as the ledger refuses it: where its worst case does not fit on top of what is spent, owed and on hold.
Calls that are refused leave their room to those that follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Movement:
    """One entry of the ledger; amounts in micro-dollars. ``reservation``: the id of the call's hold, None for a
    movement that belongs to no call."""

    at: datetime
    reservation: int | None
    is_reserve: bool
    spent_micros: int
    reserved_micros: int
    group: str = ""


@dataclass(slots=True)
class CallSum:
    calls: int = 0
    cost_micros: int = 0


@dataclass(slots=True)
class Replay:
    """``made``: all calls as they were; ``refused``: those that the limit refuses, by group in ``by_group``."""

    made: CallSum = field(default_factory=CallSum)
    refused: CallSum = field(default_factory=CallSum)
    by_group: dict[str, CallSum] = field(default_factory=dict)
    first_refused: datetime | None = None


def replay(movements: Iterable[Movement], limit_micros: int) -> Replay:
    """``movements``: in the order of the ledger; ``spent_micros`` includes debt. ``limit_micros``: the other limit."""
    found, taken_micros = Replay(), 0
    refused: set[int] = set()
    for one in movements:
        found.made.cost_micros += one.spent_micros
        if one.is_reserve:
            found.made.calls += 1
            if taken_micros + one.reserved_micros > limit_micros and one.reservation is not None:
                refused.add(one.reservation)
                found.first_refused = found.first_refused or one.at
                for count in (found.refused, found.by_group.setdefault(one.group, CallSum())):
                    count.calls += 1
        if one.reservation in refused:
            for count in (found.refused, found.by_group[one.group]):
                count.cost_micros += one.spent_micros
        else:
            taken_micros += one.spent_micros + one.reserved_micros
    return found
