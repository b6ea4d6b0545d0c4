"""ClickHouse's HTTP interface over chdb, on loopback: one process holds the folder, and all others ask it.

``python -m warehouse.clickhouse.server FOLDER PORT``; the password is WAREHOUSE_PASSWORD. It knows what
``HttpTransport`` uses: a statement as the body or in ``query``, rows as the body, ``param_NAME``, and ``/ping``.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from evaluation.warehouse.clickhouse.transports import ChdbTransport, WarehouseRefused, WarehouseTransport

CODE: Final = re.compile(r"Code: (\d+)")


class ChdbServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, transport: WarehouseTransport, port: int, password: str) -> None:
        super().__init__(("127.0.0.1", port), ChdbHandler)
        self.transport = transport
        self.authorization = b"Basic " + base64.b64encode(f"default:{password}".encode())


class ChdbHandler(BaseHTTPRequestHandler):
    server: ChdbServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self.server.authorization):
            self._answer(403, b"Code: 516. DB::Exception: Authentication failed", code="516")
            return
        query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        parameters = {name[6:]: value for name, value in query.items() if name.startswith("param_")}
        try:
            if sql := query.get("query"):
                found = self.server.transport.send(sql, parameters, body)
            else:
                found = self.server.transport.send(body.decode(), parameters)
        except WarehouseRefused as error:
            code = CODE.search(str(error))
            self._answer(500, str(error).encode(), code=code[1] if code else "1")
            return
        self._answer(200, found)

    def _answer(self, status: int, content: bytes, *, code: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Queries are not logged."""


def main(folder: str, port: str) -> None:
    transport = ChdbTransport(Path(folder))
    server = ChdbServer(transport, int(port), os.environ["WAREHOUSE_PASSWORD"])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    transport.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
