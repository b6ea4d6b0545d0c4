"""Conditions on trajectories in SQL of our own."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, Func
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler


class Condition(Func):
    """A condition in which columns of the row are in braces: a query within another calls its table by another
    name."""

    output_field = BooleanField()

    def __init__(self, sql: str, values: tuple[Any, ...], *, columns: tuple[str, ...] = ("month", "id")) -> None:
        super().__init__(*map(F, columns))
        self.sql, self.values, self.columns = sql, values, columns

    def sql_for(self, query: Query) -> str:
        """The condition as that query asks it, with the same values."""
        return self.sql

    def as_sql(self, compiler: SQLCompiler, *_: Any, **__: Any) -> tuple[str, Any]:
        compiled = [compiler.compile(expression)[0] for expression in self.get_source_expressions()]
        named = dict(zip(self.columns, compiled, strict=True))
        return self.sql_for(compiler.query).format(**named), self.values
