"""The HTTP client for servers that the operator configures: Vault, ClickHouse, the bucket. Addresses that people enter
are called by ``agentcore_site.outbound``.

It follows no redirect, asks no proxy, keeps no cookie and unpacks no answer. It trusts the certificates of the
operating system (``SSL_CERT_FILE`` names others). Every answer has a limit of bytes.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx

ANSWER_SECONDS: Final = 0.7  # to connect, and as long again for an answer
KNOWN_SECONDS: Final = 2.0  # that an answer, or its absence, is believed
ANSWER_BYTES: Final = 1_000_000
HEADERS: Final = {"accept-encoding": "identity", "user-agent": "agentcore"}


class HttpFailed(OSError):
    """No connection, no answer in time, or no HTTP."""


class AnswerTooLarge(HttpFailed):
    pass


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names are found in any case
    body: bytes


class HttpClient:
    """Calls one server: its scheme, host and port are those of ``url``. Threads may share a client."""

    def __init__(self, url: str, *, port: int | None = None) -> None:
        """``port`` is the port where ``url`` names none. Raises ValueError: the port of ``url`` is not a number."""
        parts = urlsplit(url)
        self.path = parts.path.rstrip("/")
        self._scheme = "https" if parts.scheme == "https" else "http"
        self._host, self._port = parts.hostname or "localhost", parts.port or port
        self._guard = threading.Lock()
        self._asked, self._answered = -60.0, False

    def exchange(
        self,
        method: str,
        target: str,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        limit: int = ANSWER_BYTES,
    ) -> HttpAnswer:
        """One request on a connection of its own, so that a fork shares none. ``target`` is sent as it is, without
        httpx's limit of 65,536 characters. ``seconds`` are the most for connecting, and for each read and write;
        ``limit`` is the most bytes of the answer's body.

        Raises:
            HttpFailed: there was no answer.
            AnswerTooLarge: its body is longer than ``limit``.
        """
        try:
            url = httpx.URL(scheme=self._scheme, host=self._host, port=self._port)
            with (
                httpx.Client(verify=_tls(), trust_env=False, timeout=seconds, headers=HEADERS) as client,
                client.stream(
                    method, url, headers=headers, content=body, extensions={"target": target.encode("ascii")}
                ) as response,
            ):
                found = bytearray()
                for piece in response.iter_raw():
                    found += piece
                    if len(found) > limit:
                        raise AnswerTooLarge(f"The answer is longer than {limit:,} bytes.")
                return HttpAnswer(response.status_code, response.headers, bytes(found))
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise HttpFailed(str(error) or type(error).__name__) from error

    def server_answers(self) -> bool:
        """Whether the server answers within ``ANSWER_SECONDS``; a refusal is an answer. A request asks this first: the
        time-outs of libraries are made for work (a file of a gigabyte, a query over a year), and a page waits two
        seconds. Threads that ask at once share the question."""
        with self._guard:
            if time.monotonic() - self._asked >= KNOWN_SECONDS:
                try:
                    self.exchange("HEAD", "/", seconds=ANSWER_SECONDS)
                    self._answered = True
                except HttpFailed:
                    self._answered = False
                self._asked = time.monotonic()
            return self._answered


@lru_cache(maxsize=16)
def http_client_of(url: str) -> HttpClient:
    return HttpClient(url)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One for all connections: loading the certificates takes longer than a call."""
    return ssl.create_default_context()
