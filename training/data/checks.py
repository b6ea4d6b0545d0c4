"""Checks of the rows of a dataset before any money is spent on them: pure.

A finding is a hint, not a verdict: a query that quotes an attack is flagged like an attack.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiences.learning.lessons.prompt_injection import suspicion
from training.splits import normalized

ONE_SIDED: Final = 0.8  # share of the most frequent expected outcome from which a policy gains by always answering that
LEAST_ROWS: Final = 10  # fewer say nothing about shares
CHECKED_CHARS: Final = 4_000  # of a query, when it is looked at for injections


@dataclass(frozen=True, slots=True)
class RowFlag:
    """``kind``: "duplicate", "contradiction" or "injection"."""

    index: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class DatasetChecks:
    """``distinct``: queries that are not the same, case and white space aside. ``top_share``: of the rows, those whose
    expected outcome is the most frequent one, ``top_outcome``."""

    rows: int
    distinct: int
    flags: list[RowFlag]
    top_outcome: str
    top_share: float

    @property
    def one_sided(self) -> bool:
        return self.rows >= LEAST_ROWS and self.top_share >= ONE_SIDED

    def count(self, kind: str) -> int:
        return sum(flag.kind == kind for flag in self.flags)


def check_rows(rows: Sequence[Mapping[str, Any]]) -> DatasetChecks:
    """Looks at {query, expected_outcome} of each row, in their order. Rows without an expected outcome are judged in
    other ways, and are no part of ``top_share``."""
    first: dict[str, int] = {}
    outcomes = [_outcome(row) for row in rows]
    flags: list[RowFlag] = []
    for index, row in enumerate(rows):
        before = first.setdefault(normalized(str(row["query"])), index)
        if before != index:
            same = outcomes[before] == outcomes[index]
            kind = "duplicate" if same else "contradiction"
            words = f"The same query as row {before + 1}" + ("." if same else ", with another expected outcome.")
            flags.append(RowFlag(index, kind, words))
        if why := suspicion(str(row["query"])[:CHECKED_CHARS]):
            flags.append(RowFlag(index, "injection", f"It may be an attack: {why}."))
    counted = Counter(outcome for outcome in outcomes if outcome)
    [(top, n)] = counted.most_common(1) or [("", 0)]
    return DatasetChecks(len(rows), len(first), flags, top, n / counted.total() if counted else 0.0)


def _outcome(row: Mapping[str, Any]) -> str:
    outcome = row.get("expected_outcome")
    return json.dumps(outcome, sort_keys=True, default=str) if outcome else ""
