"""The search for a text in the query of trajectories: those that ``icontains`` finds. Queries are stored once for all
rollouts of a place (``QueryRecord``), and an index of trigrams serves the search there."""

from __future__ import annotations

from typing import Final

from django.db import connection
from django.db.models import QuerySet
from django.db.models.sql import Query

from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.shadowed import is_shadowed
from experiences.trajectories.asked import Asked

ONE_BY_ONE: Final = "UPPER({query}) LIKE UPPER(%s)"
# A page of a list: texts and their statistics tell the planner how many rows to expect, so that it walks along the
# order where many have the text.
ORDERED: Final = (
    "({month}, {job_id}, {iteration}, {scenario}, {query}) IN (SELECT month, job_id, iteration, scenario, query"
    " FROM experiences_query_search WHERE upper_query LIKE UPPER(%s))"
)
# A count: by the key no row is found twice, so that it ends at its limit, however many places are left.
COUNTED_OUT: Final = (
    "({month}, {job_id}, {iteration}, {scenario}, hashtextextended({query}, 0)) IN (SELECT month, job_id, iteration,"
    " scenario, digest FROM experiences_query_search WHERE upper_query LIKE UPPER(%s))"
)
EXPECTED: Final = (
    "EXPLAIN (FORMAT JSON) SELECT FROM experiences_query_search WHERE upper_query LIKE UPPER(%s)"
    " UNION ALL SELECT FROM experiences_query_search"
)
COUNTED: Final = 10_000  # rows of which a list tells the number
IN_SCOPE: Final = 1 / 3  # what the planner expects of all queries to be those of the scope


class _Holds(Asked):
    def __init__(self, pattern: str) -> None:
        super().__init__(ORDERED, (pattern,), columns=("month", "job_id", "iteration", "scenario", "query"))

    def condition_for(self, query: Query) -> str:
        if is_shadowed():  # an export asks the same rows of the database and then of archives, which have no places
            return ONE_BY_ONE
        return ORDERED if query.order_by or query.default_ordering else COUNTED_OUT


def query_with(rows: QuerySet[TrajectoryRecord], text: str) -> QuerySet[TrajectoryRecord]:
    """Those whose query holds the text, in any case."""
    pattern = f"%{connection.ops.prep_for_like_query(text)}%"
    return rows.filter(query__icontains=text) if _is_common(pattern) else rows.filter(_Holds(pattern))


def _is_common(pattern: str) -> bool:
    """Whether so many queries hold it that a list finds COUNTED rows sooner one after the other (COUNTED / share of
    them are read) than by their places (share * all are read). By what the planner expects."""
    with connection.cursor() as cursor:
        cursor.execute(EXPECTED, [pattern])
        [[[told]]] = cursor.fetchall()
    holding, seen = (part["Plan Rows"] for part in told["Plan"]["Plans"])
    return bool((holding / seen) ** 2 * (seen / IN_SCOPE) > COUNTED)
