"""Rows to learn from out of production traces: what was asked, and what a good answer is. Pure, no Django.

An answer that was liked is a good one, a correction is a better one than what was answered. What was only disliked says
nothing of what would be right. A query that stands in several traces is one row, of its newest correction, else of its
newest liked answer. Rows that a person should look at before they train are flagged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from experiences.learning.lessons.prompt_injection import suspicion

LIKED: Final = "liked"
CORRECTED: Final = "corrected"
ONE_GIVER: Final = "much of what is learned from comes from this one giver"
DISAGREED: Final = "people disagree about its answer"
MOST_OF_ONE: Final = 0.2  # of the rows, from one giver
FEW: Final = 20  # rows, below which no giver has too many


@dataclass(frozen=True, slots=True)
class JudgedTrace:
    """A trace with what was thought of it. ``liked`` by how many, ``disliked`` by how many; ``correction`` is the
    newest one, "" for none; ``giver`` is who gave that, or the first who liked it."""

    id: UUID
    query: str
    answer: str
    liked: int
    disliked: int
    correction: str
    giver: str


@dataclass(frozen=True, slots=True)
class LearnableRow:
    """``flags``: why a person should look at it before it trains."""

    trace: UUID
    query: str
    expected: str
    source: str
    giver: str
    flags: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """As a dataset takes it."""
        return {
            "query": self.query,
            "expected_outcome": {"answer": self.expected},
            "metadata": {"trace": str(self.trace), "source": self.source},
        }


def rows_of(traces: Iterable[JudgedTrace]) -> list[LearnableRow]:
    """One row a query, in the order in which the queries first came; ``traces`` come oldest first."""
    found: dict[str, LearnableRow] = {}
    answers: dict[str, set[str]] = defaultdict(set)
    for one in traces:
        query = one.query.strip()
        source = CORRECTED if one.correction.strip() else LIKED if one.liked > one.disliked else ""
        if not query or not source:
            continue
        expected = (one.correction if source == CORRECTED else one.answer).strip()
        answers[query].add(expected.casefold())
        known = found.get(query)
        if known is None or source == CORRECTED or known.source == LIKED:
            disagreed = (DISAGREED,) if one.liked and one.disliked else ()
            found[query] = LearnableRow(one.id, query, expected, source, one.giver, disagreed)
    return _flagged(list(found.values()), answers)


def _flagged(rows: Sequence[LearnableRow], answers: dict[str, set[str]]) -> list[LearnableRow]:
    givers = Counter(row.giver for row in rows)
    many = {
        giver for giver, n in givers.items() if len(rows) >= FEW and n > MOST_OF_ONE * len(rows) and len(givers) > 1
    }
    flagged = []
    for row in rows:
        flags = list(row.flags)
        if len(answers[row.query]) > 1 and DISAGREED not in flags:
            flags.append(DISAGREED)
        if why := suspicion(row.expected):  # a query is the user's own order; what is learned is the answer
            flags.append(why)
        if row.giver in many:
            flags.append(ONE_GIVER)
        flagged.append(replace(row, flags=tuple(flags)))
    return flagged
