"""Status of the processes of ``up``, served on ``METRICS_PORT``: whether they run, and their metrics.

Prometheus and probes ask each host here. The console's own ``/metrics`` has, besides its host's counters, figures from
the database.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from agentcore_site.embedded.supervisor import ProcessState
from agentcore_site.lib.service_paths import CannotStart

EVERYWHERE, LOCAL = "0.0.0.0", "127.0.0.1"  # noqa: S104  (without a token: loopback only)

States = Callable[[], Sequence[ProcessState]]


def counted(folder: str | Path) -> CollectorRegistry:
    """Metrics of all processes that write their figures to ``folder``."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    return registry


class ProcessesCollector(Collector):
    """The processes of ``up``: whether each runs, and its number of restarts."""

    def __init__(self, states: States) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("process_running", "Whether the process runs.", labels=["process"])
        restarts = CounterMetricFamily(
            "process_restarts", "How often the process ended and was restarted.", labels=["process"]
        )
        for state in self._states():
            running.add_metric([state.name], float(bool(state.pid)))
            restarts.add_metric([state.name], state.restarts)
        yield from (running, restarts)


class StatusServer:
    """Serves ``/health/live``, ``/health/ready`` and ``/metrics`` until ``stop``.

    ``states``: of the processes. ``token``: the bearer token that ``/metrics`` requires; without one the port is open
    to this machine only.

    Raises:
        CannotStart: another program has the port.
    """

    def __init__(self, port: int, *, token: str, folder: Path, states: States) -> None:
        self.ready = False  # true once everything was started
        self._token, self._folder, self._states = token, folder, states
        try:
            self._server = ThreadingHTTPServer((EVERYWHERE if token else LOCAL, port), _handler(self))
        except OSError as error:
            raise CannotStart(f"METRICS_PORT={port} can't be listened on: {error.strerror}.") from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, type and body of the answer to a GET."""
        if path == "/metrics":
            given = authorization.removeprefix("Bearer ").encode()
            if self._token and not secrets.compare_digest(given, self._token.encode()):
                return 401, "text/plain", b"Give METRICS_TOKEN as a bearer token.\n"
            registry = counted(self._folder)
            registry.register(ProcessesCollector(self._states))
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        if path not in ("/health/live", "/health/ready"):
            return 404, "text/plain", b"Here are /health/live, /health/ready and /metrics.\n"
        down = [state.name for state in self._states() if not state.pid]
        well = not down and (self.ready or path == "/health/live")
        body = {"status": "ok" if well else "down" if down else "starting", "down": down}
        return 200 if well else 503, "application/json", json.dumps(body).encode()


def _handler(status: StatusServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds: a silent client blocks its thread no longer

        def do_GET(self) -> None:
            code, kind, body = status.answer(self.path.partition("?")[0], self.headers.get("Authorization", ""))
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests of probes are not logged."""

    return Handler
