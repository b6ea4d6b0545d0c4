"""A foreign server for webhooks, on a socket."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WebhookReceiver(ThreadingHTTPServer):
    """``moods`` are drawn from for each request: "taken"; "refused"; "lost", taken though the answer says 500; "cut",
    taken and no answer; "slow"; "gone", 410; "page", taken with an answer of HTML."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.moods = ["taken"]
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a sender that was killed

    def bodies(self) -> dict[str, Any]:
        """The received messages by id; one id always has the same message."""
        values: dict[str, Any] = {}
        for headers, body in self.came:
            read = json.loads(body)
            assert values.setdefault(headers["webhook-id"], read) == read
        return values


class _Receiving(BaseHTTPRequestHandler):
    server: WebhookReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mood = random.choice(self.server.moods)
        if mood == "slow":
            time.sleep(0.2)
        if mood not in ("refused", "gone"):
            self.server.came.append(({name.lower(): value for name, value in self.headers.items()}, body))
        if mood == "cut":
            return
        said = b"<h1>inside</h1>" if mood == "page" else b"noted by jo@example.org"
        self.send_response({"refused": 500, "lost": 500, "gone": 410}.get(mood, 200))
        self.send_header("Content-Type", "text/html" if mood == "page" else "text/plain")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
