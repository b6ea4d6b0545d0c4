"""Checks that an HTTP server answers at all, before a request of ours waits for it.

The time-outs of libraries are made for work (a file of a gigabyte, a query over a year), and a page waits two seconds.
"""

from __future__ import annotations

import http.client
import threading
import time
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

ANSWER_SECONDS: Final = 0.7  # to connect, and again the same for an answer
KNOWN_SECONDS: Final = 2.0  # for which the result is reused


class HttpServer:
    """One server. Any response counts, also a refusal. Concurrent threads share the check."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "localhost", parts.port
        self._guard = threading.Lock()
        self._asked, self._found = -60.0, False

    def answers(self) -> bool:
        with self._guard:
            if time.monotonic() - self._asked >= KNOWN_SECONDS:
                self._found = self._ask()
                self._asked = time.monotonic()
            return self._found

    def _ask(self) -> bool:
        link = self._make(self._host, self._port, timeout=ANSWER_SECONDS)
        try:
            link.request("HEAD", "/")
            link.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            link.close()
        return True


@lru_cache(maxsize=16)
def http_server_at(url: str) -> HttpServer:
    return HttpServer(url)
