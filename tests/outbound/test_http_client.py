"""The client of servers that the operator configures, on real sockets."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from agentcore_site.lib.http_client import AnswerTooLarge, HttpClient, HttpFailed
from tests.experiences.rollouts.tools.test_fetch import Pages, certificate


def test_client_follows_no_redirect_and_asks_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answers = {"/away": (302, {"location": "/there"}, b""), "/%c3'?a=%C3%A4": (200, {"set-cookie": "a=b"}, b"hello")}
    with Pages(answers) as pages:
        client = HttpClient(f"http://me:word@127.0.0.1:{pages.port}/prefix/")
        assert client.exchange("GET", "/away", seconds=5).status == 302
        assert client.exchange("GET", "/%c3'?a=%C3%A4", seconds=5).body == b"hello"  # the address is sent as it is
        assert client.exchange("GET", "/", seconds=5).status == 404
    assert [path for path, _ in pages.asked] == ["/away", "/%c3'?a=%C3%A4", "/"] and client.path == "/prefix"
    for _, headers in pages.asked:
        assert not headers.keys() & {"authorization", "cookie"} and headers["accept-encoding"] == "identity"


def test_httpx_does_not_limit_the_length_of_an_address() -> None:
    """The words of an erasure reach ClickHouse in the address."""
    with Pages({}) as pages:
        answer = HttpClient(f"http://127.0.0.1:{pages.port}").exchange("GET", f"/{'a' * 70_000}", seconds=5)
    assert answer.status == 414  # the server of this test answers, and refuses


def test_client_reads_no_more_than_its_limit() -> None:
    with Pages({"/": (200, {}, 1_000), "/just": (200, {}, b"x" * 1_000)}) as pages:
        client = HttpClient(f"http://127.0.0.1:{pages.port}")
        assert len(client.exchange("GET", "/just", seconds=5, limit=1_000).body) == 1_000
        with pytest.raises(AnswerTooLarge, match="longer than 999 bytes"):
            client.exchange("GET", "/just", seconds=5, limit=999)
        with pytest.raises(AnswerTooLarge, match="longer than 1,000,000 bytes"):  # the body never ends
            client.exchange("GET", "/", seconds=5)


def test_silence_and_absence_are_failures() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(HttpFailed, match="timed out"):
            HttpClient(f"http://127.0.0.1:{port}").exchange("GET", "/", seconds=0.1)
    with pytest.raises(HttpFailed, match="refused"):
        HttpClient("http://127.0.0.1", port=port).exchange("GET", "/", seconds=5)
    with pytest.raises(HttpFailed):
        HttpClient("http://a..b").exchange("GET", "/", seconds=5)


def test_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path, "localhost"))
    with Pages({"/": (200, {}, b"hello")}, tls=context) as pages, pytest.raises(HttpFailed, match="certificate"):
        HttpClient(f"https://localhost:{pages.port}").exchange("GET", "/", seconds=5)
    assert not pages.asked
