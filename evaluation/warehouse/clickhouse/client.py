"""Statements with values that are bound and never written into the text, and answers as rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from evaluation.warehouse.clickhouse.transports import ChdbTransport, HttpTransport, WarehouseTransport

ANSWER: Final = (
    " SETTINGS date_time_output_format = 'iso', output_format_json_quote_64bit_integers = 0 FORMAT JSONCompact"
)
READ: Final[dict[str, Callable[[str], Any]]] = {
    "UUID": uuid.UUID,
    "Date": date.fromisoformat,
    "DateTime": datetime.fromisoformat,
    "DateTime64": datetime.fromisoformat,
}
ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "'": "\\'"})


class ClickHouseStore:
    """The queries of the dashboards on ClickHouse, and what fills it."""

    name: Final = "warehouse"
    moments: Final[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, transport: WarehouseTransport) -> None:
        self.transport = transport

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Raises:
        WarehouseUnavailable, WarehouseRefused."""
        answer = orjson.loads(self.transport.send(sql + ANSWER, _written(parameters)))
        names = [column["name"] for column in answer["meta"]]
        readers = [READ.get(_bare_type(column["type"])) for column in answer["meta"]]
        return [
            {
                name: value if reader is None or value is None else reader(value)
                for name, reader, value in zip(names, readers, row, strict=True)
            }
            for row in answer["data"]
        ]

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str = "") -> None:
        """Raises:
        WarehouseUnavailable, WarehouseRefused."""
        self.transport.send(sql, _written(parameters), database=database)

    def insert(self, table: str, lines: Iterable[str]) -> None:
        """Rows, each as a line of JSON.

        Raises:
            WarehouseUnavailable, WarehouseRefused.
        """
        if data := "\n".join(lines).encode():
            self.transport.send(f"INSERT INTO {table} FORMAT JSONEachRow", {}, data)


@lru_cache(maxsize=4)
def store_at(url: str) -> ClickHouseStore:
    """``http(s)://…``, or ``chdb:///folder``, which one process alone may have."""
    if url.startswith("chdb://"):
        return ClickHouseStore(ChdbTransport(Path(url.removeprefix("chdb://"))))
    return ClickHouseStore(HttpTransport(url))


def _bare_type(kind: str) -> str:
    """``Nullable(DateTime('UTC'))`` → ``DateTime``."""
    return kind.removeprefix("Nullable(").partition("(")[0].rstrip(")")


def _written(parameters: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: _literal(value) for name, value in (parameters or {}).items()}


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return f"[{','.join(_quoted(str(one)) for one in value)}]"
    return str(value).translate(ESCAPES)


def _quoted(text: str) -> str:
    return f"'{text.translate(ESCAPES)}'"
