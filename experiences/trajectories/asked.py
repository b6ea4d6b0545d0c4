"""Conditions on trajectories in SQL of our own."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, Func
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler


class Asked(Func):
    """A condition in which columns of the row stand in braces: a query within another calls its table by another
    name."""

    output_field = BooleanField()

    def __init__(self, condition: str, values: tuple[Any, ...], *, columns: tuple[str, ...] = ("month", "id")) -> None:
        super().__init__(*map(F, columns))
        self.condition, self.values, self.columns = condition, values, columns

    def condition_for(self, query: Query) -> str:
        """As it is asked in that query, with the same values."""
        return self.condition

    def as_sql(self, compiler: SQLCompiler, *_: Any, **__: Any) -> tuple[str, Any]:
        told = [compiler.compile(one)[0] for one in self.get_source_expressions()]
        named = dict(zip(self.columns, told, strict=True))
        return self.condition_for(compiler.query).format(**named), self.values
