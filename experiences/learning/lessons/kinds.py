"""Kinds of queries: one question sorts the queries of a run by what they are about. Pure.

The answer names each kind with the numbers of its queries. A query that it leaves out has no kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from experiences.learning.lessons.attempts import task_text

STAGE: Final = "kinds"
MOST_QUERIES: Final = 200  # of one question; any others have no kind
MOST_CHARACTERS: Final = 300  # of a query
MOST_KINDS: Final = 40
LEAST_SORTED: Final = 0.5  # share of the queries; an answer that sorts fewer is not used


class Kind(BaseModel):
    """Queries of one kind."""

    model_config = ConfigDict(extra="ignore")

    kind: str = Field(min_length=1, max_length=80, description="Name of the kind, in one to four words.")
    queries: list[int] = Field(max_length=MOST_QUERIES, description="Numbers of the queries of this kind.")


class Kinds(BaseModel):
    """All queries, by kind."""

    model_config = ConfigDict(extra="ignore")

    kinds: list[Kind] = Field(max_length=MOST_KINDS, description="Each query belongs to one kind.")


def queries_text(queries: Sequence[str]) -> str:
    """The queries as the question shows them, numbered from 1, without personal data."""
    lines = (" ".join(task_text(query).split())[:MOST_CHARACTERS] for query in queries[:MOST_QUERIES])
    return "\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1))


def question_key(queries: Sequence[str]) -> str:
    """The name of the question: the same for the same queries in the same order."""
    return f"{STAGE}/{hashlib.sha256(queries_text(queries).encode()).hexdigest()[:32]}"


def labels_in(answer: Kinds, n: int) -> tuple[str, ...]:
    """The label of each of ``n`` queries, "" where the answer has none. The first kind that names a query counts."""
    labels = [""] * n
    for one in answer.kinds:
        for number in one.queries:
            if 1 <= number <= min(n, MOST_QUERIES) and not labels[number - 1]:
                labels[number - 1] = label_of(one.kind)
    return tuple(labels)


def label_of(kind: str) -> str:
    return " ".join(kind.casefold().split())


def fault(answer: Kinds, n: int) -> str:
    """Why an answer about ``n`` queries is of no use; "" if it is of use."""
    labels, asked = labels_in(answer, n), min(n, MOST_QUERIES)
    if (found := sum(map(bool, labels))) < LEAST_SORTED * asked:
        return f"it sorts {found} of the {asked} queries"
    return "" if len(set(filter(None, labels))) > 1 else "it names fewer than two kinds"


def labels_by_name(reply: Mapping[str, Any]) -> list[str]:
    """The labels of a stored answer."""
    return list(dict.fromkeys(label_of(one.kind) for one in Kinds.model_validate(reply).kinds))
