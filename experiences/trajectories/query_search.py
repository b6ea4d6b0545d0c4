"""The search for a text in the query of trajectories: those that ``icontains`` finds. Queries are stored once for all
rollouts of a place (``QueryRecord``), and an index of trigrams serves the search there."""

from __future__ import annotations

from typing import Any, Final

from django.db import connection
from django.db.models import BooleanField, F, Func, QuerySet, Value
from django.db.models.sql.compiler import SQLCompiler

from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.shadowed import is_shadowed

# That the row itself is compared, too, is told in words of which the planner expects a third to hold: LIKE would have
# it expect a tenth of what LIKE in the view has told it already, and read a common text's rows one by one.
BY_PLACE: Final = (
    "(({month}, {job}, {iteration}, {scenario}) IN (SELECT month, job_id, iteration, scenario"
    " FROM experiences_query_search WHERE upper_query LIKE UPPER({pattern}))"
    " AND strpos(UPPER({query}), UPPER({text})) > 0)"
)
EXPECTED: Final = (
    "EXPLAIN (FORMAT JSON) SELECT FROM experiences_query_search WHERE upper_query LIKE UPPER(%s)"
    " UNION ALL SELECT FROM experiences_query_search"
)
COUNTED: Final = 10_000  # rows of which a list tells the number
IN_SCOPE: Final = 1 / 3  # what the planner expects of all queries to be those of the scope


class _Holds(Func):
    """Which rows have the text in their query."""

    output_field = BooleanField()

    def __init__(self, text: str, pattern: str, *, each: bool) -> None:
        columns = (F(name) for name in ("month", "job_id", "iteration", "scenario", "query"))
        super().__init__(*columns, Value(pattern), Value(text))
        self.each = each

    def as_sql(self, compiler: SQLCompiler, *_: Any, **__: Any) -> tuple[str, Any]:
        """Only here it is known which table is asked: an export asks the same rows of the database and of archives,
        whose queries are not stored by place."""
        parts = [compiler.compile(one) for one in self.get_source_expressions()]
        month, job, iteration, scenario, query, pattern, text = (sql for sql, _ in parts)
        if self.each or is_shadowed():
            return f"UPPER({query}) LIKE UPPER({pattern})", parts[5][1]
        asked = BY_PLACE.format(
            month=month, job=job, iteration=iteration, scenario=scenario, query=query, pattern=pattern, text=text
        )
        return asked, (*parts[5][1], *parts[6][1])


def query_with(rows: QuerySet[TrajectoryRecord], text: str) -> QuerySet[TrajectoryRecord]:
    """Those whose query holds the text, in any case."""
    pattern = f"%{connection.ops.prep_for_like_query(text)}%"
    return rows.filter(_Holds(text, pattern, each=_is_common(pattern)))


def _is_common(pattern: str) -> bool:
    """Whether so many queries hold it that a list finds COUNTED rows sooner one after the other (COUNTED / share of
    them are read) than by their places (share * all are read). By what the planner expects."""
    with connection.cursor() as cursor:
        cursor.execute(EXPECTED, [pattern])
        [[[told]]] = cursor.fetchall()
    holding, seen = (part["Plan Rows"] for part in told["Plan"]["Plans"])
    return bool((holding / seen) ** 2 * (seen / IN_SCOPE) > COUNTED)
