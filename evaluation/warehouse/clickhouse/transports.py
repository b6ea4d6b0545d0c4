"""Two ways to one SQL: ClickHouse's HTTP interface, and chdb, which is ClickHouse as a library.

WarehouseError
  WarehouseUnavailable      it does not answer, or not in time
  WarehouseRefused   it answers, and says what is wrong with the query
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from agentcore_site.lib.http_client import AnswerTooLarge, HttpClient, HttpFailed
from agentcore_site.lib.row_scope import in_request

DATABASE: Final = "agentcore"
READ_SECONDS: Final = 5.0
WRITE_SECONDS: Final = (
    20.0  # below what a session may hang in a transaction (operations: DB_IDLE_IN_TRANSACTION_SECONDS)
)
ANSWER_BYTES: Final = 256_000_000
IDENTIFIER: Final = re.compile(r"\w{1,64}", re.ASCII)


class WarehouseError(Exception):
    pass


class WarehouseUnavailable(WarehouseError):
    pass


class WarehouseRefused(WarehouseError):
    pass


class WarehouseTransport(Protocol):
    database: str

    def send(self, sql: str, parameters: Mapping[str, str], data: bytes = b"", *, database: str = "") -> bytes:
        """The answer to one statement. ``parameters`` are in it as ``{name:Type}`` and are written as in a file of
        tab separated values; ``data`` are the rows of an INSERT.

        Raises:
            WarehouseUnavailable, WarehouseRefused.
        """
        ...


class HttpTransport:
    """``http(s)://user:password@host:8123/database``."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = HttpClient(url, port=8443 if parts.scheme == "https" else 8123)
        self.database = unquote(parts.path.strip("/")) or DATABASE
        if not IDENTIFIER.fullmatch(self.database):
            raise ValueError("CLICKHOUSE_URL names a database that is no plain word.")
        user = f"{unquote(parts.username or 'default')}:{unquote(parts.password or '')}"
        self._headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def send(self, sql: str, parameters: Mapping[str, str], data: bytes = b"", *, database: str = "") -> bytes:
        given = {"database": database or self.database} | {f"param_{name}": value for name, value in parameters.items()}
        body = data or sql.encode()
        address = f"/?{urlencode(given | ({'query': sql} if data else {}), quote_via=quote)}"
        if in_request() and not self._server.server_answers():
            raise WarehouseUnavailable("ClickHouse does not answer")
        seconds = WRITE_SECONDS if data else READ_SECONDS
        try:
            answer = self._server.exchange(
                "POST", address, seconds=seconds, headers=self._headers, body=body, limit=ANSWER_BYTES
            )
        except AnswerTooLarge as error:
            raise WarehouseRefused(str(error)) from error
        except HttpFailed as error:
            raise WarehouseUnavailable(f"ClickHouse does not answer: {error}") from error
        if answer.status == 200:
            return answer.body
        words = answer.body.decode(errors="replace")[:500].strip()
        # A proxy in front of it answers for one that is away, without this header.
        if answer.headers.get("X-ClickHouse-Exception-Code") is None and answer.status >= 500:
            raise WarehouseUnavailable(f"ClickHouse does not answer: {answer.status}")
        raise WarehouseRefused(words or f"ClickHouse answered {answer.status}")


class ChdbTransport:
    """A folder that this process alone has; one per process, as chdb has it."""

    database = DATABASE

    def __init__(self, folder: Path) -> None:
        from chdb import session  # half a gigabyte, and an extra

        self._session: Any = session.Session(str(folder))
        self._session.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self._session.query(f"USE {DATABASE}")
        self._guard = threading.Lock()

    def send(self, sql: str, parameters: Mapping[str, str], data: bytes = b"", *, database: str = "") -> bytes:
        text = f"{sql}\n{data.decode()}" if data else sql
        with self._guard:
            try:
                found = self._session.query(text, "TabSeparated", params=dict(parameters))
            except RuntimeError as error:
                raise WarehouseRefused(str(error)) from error
        return bytes(found.bytes() or b"") if hasattr(found, "bytes") else str(found).encode()

    def close(self) -> None:
        self._session.close()
