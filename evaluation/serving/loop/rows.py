"""Rows to learn from, made of production traces: the query, and a good answer. Pure, no Django.
A liked answer is a good one, and a correction is better than the answer. A dislike alone does not say what would be
right. A query of several traces is one row, with its newest correction, else its newest liked answer. Rows that a
person should review before training are flagged.
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
ONE_GIVER: Final = "much of the training data comes from this one giver"
DISAGREED: Final = "people disagree about its answer"
MOST_OF_ONE: Final = 0.2  # of the rows, from one giver
FEW: Final = 20  # below this number of rows no giver has too many


@dataclass(frozen=True, slots=True)
class JudgedTrace:
    """A trace with its feedback. ``liked`` and ``disliked`` are numbers of givers; ``correction`` is the newest one, ""
    for none; ``giver`` wrote the correction, or was the first who liked the answer."""

    id: UUID
    query: str
    answer: str
    liked: int
    disliked: int
    correction: str
    giver: str


@dataclass(frozen=True, slots=True)
class LearnableRow:
    """``flags``: reasons for a person to review the row before training."""

    trace: UUID
    query: str
    expected: str
    source: str
    giver: str
    flags: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The row in the form of a dataset."""
        return {
            "query": self.query,
            "expected_outcome": {"answer": self.expected},
            "metadata": {"trace": str(self.trace), "source": self.source},
        }


def rows_of(traces: Iterable[JudgedTrace]) -> list[LearnableRow]:
    """One row per query, in the order of the queries' first traces; ``traces`` come oldest first."""
    found: dict[str, LearnableRow] = {}
    answers: dict[str, set[str]] = defaultdict(set)
    for trace in traces:
        query = trace.query.strip()
        source = CORRECTED if trace.correction.strip() else LIKED if trace.liked > trace.disliked else ""
        if not query or not source:
            continue
        expected = (trace.correction if source == CORRECTED else trace.answer).strip()
        answers[query].add(expected.casefold())
        known = found.get(query)
        if known is None or source == CORRECTED or known.source == LIKED:
            disagreed = (DISAGREED,) if trace.liked and trace.disliked else ()
            found[query] = LearnableRow(trace.id, query, expected, source, trace.giver, disagreed)
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
        if why := suspicion(row.expected):  # a query is the user's own instruction; training uses the answer
            flags.append(why)
        if row.giver in many:
            flags.append(ONE_GIVER)
        flagged.append(replace(row, flags=tuple(flags)))
    return flagged
