"""The search for a text in the query of trajectories: those that ``icontains`` finds. Queries are stored once for all
rollouts of a place (``QueryRecord``), and an index of trigrams serves the search there."""

from __future__ import annotations

from typing import Final

from django.db import connection
from django.db.models import QuerySet
from django.db.models.sql import Query

from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.archive_view import is_shadowed
from experiences.trajectories.conditions import Condition

ROW_BY_ROW: Final = "UPPER({query}) LIKE UPPER(%s)"
# For rows in an order. By the statistics of both texts the planner knows how many rows to expect: where many have the
# text, it reads them in that order and stops after a page.
IN_ORDER: Final = (
    "({month}, {job_id}, {iteration}, {scenario}, {query}) IN (SELECT month, job_id, iteration, scenario, query"
    " FROM experiences_query_search WHERE upper_query LIKE UPPER(%s))"
)
# For a count. By the key of the table no row is found twice, which the planner knows: it collects no places first, and
# stops at the limit of the count.
IN_NO_ORDER: Final = (
    "({month}, {job_id}, {iteration}, {scenario}, hashtextextended({query}, 0)) IN (SELECT month, job_id, iteration,"
    " scenario, digest FROM experiences_query_search WHERE upper_query LIKE UPPER(%s))"
)
PLAN: Final = (
    "EXPLAIN (FORMAT JSON) SELECT FROM experiences_query_search WHERE upper_query LIKE UPPER(%s)"
    " UNION ALL SELECT FROM experiences_query_search"
)
COUNTED: Final = 10_000  # rows to which a list counts (COUNT_LIMIT of the console)
IN_SCOPE: Final = 1 / 3  # the share of all queries that the planner expects to be in the scope


class _Holds(Condition):
    def __init__(self, pattern: str) -> None:
        super().__init__(IN_ORDER, (pattern,), columns=("month", "job_id", "iteration", "scenario", "query"))

    def sql_for(self, query: Query) -> str:
        if is_shadowed():  # an export asks the same rows of the database and then of archives, which have no places
            return ROW_BY_ROW
        return IN_ORDER if query.order_by or query.default_ordering else IN_NO_ORDER


def query_with(rows: QuerySet[TrajectoryRecord], text: str) -> QuerySet[TrajectoryRecord]:
    """Trajectories whose query holds the text, in any case."""
    pattern = f"%{connection.ops.prep_for_like_query(text)}%"
    return rows.filter(query__icontains=text) if _is_common(pattern) else rows.filter(_Holds(pattern))


def _is_common(pattern: str) -> bool:
    """True if so many queries match that COUNTED rows are found sooner row by row (which reads COUNTED / share of
    them) than by their places (which reads share * all), by what the planner expects."""
    with connection.cursor() as cursor:
        cursor.execute(PLAN, [pattern])
        [[[planned]]] = cursor.fetchall()
    holding, seen = (part["Plan Rows"] for part in planned["Plan"]["Plans"])
    return bool((holding / seen) ** 2 * (seen / IN_SCOPE) > COUNTED)
