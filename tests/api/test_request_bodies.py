"""Bodies as clients send them: in chunks without a length, packed, behind a wish for another protocol."""

from __future__ import annotations

import gzip
import io
import json
import socket
import time
import zlib
from collections.abc import Iterable
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest
from asgiref.sync import async_to_sync

from agentcore_site.lib.packed_bodies import BodyRefused, UnpackedStream, body_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from evaluation.events.models import WaitingSpan
from experiences.models import Agent
from tests.evaluation.events.test_otlp_receiving import export, span
from tests.support.callers import Caller
from tests.support.memory import measured, peak_of
from tests.support.workers import Fleet

H2C = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
ROWS = {"query": "q"}
BODY = json.dumps({"words": ["one", "two"] * 5_000}).encode()
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
PACKED = {
    "gzip": gzip.compress(BODY, mtime=0),  # without the time, which would be in the name of a test
    "x-gzip": gzip.compress(BODY[:999], mtime=0) + gzip.compress(BODY[999:], mtime=0),
    "deflate": zlib.compress(BODY),
    "Deflate": RAW.compress(BODY) + RAW.flush(),
    "": BODY,
    "identity": BODY,
}


def read(body: bytes, encoding: str, most: int = 10**6, size: int = 100) -> bytes:
    """As an ASGI application reads it, in pieces of ``size``."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    events = [{"type": "http.request", "body": one, "more_body": True} for one in pieces]
    events[-1]["more_body"] = False
    left = iter(events)

    async def receive() -> Any:
        return next(left)

    return async_to_sync(body_of)([(b"Content-Encoding", encoding.encode())], receive, most)


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_body_is_read_as_it_was_before_it_was_packed(encoding: str, size: int) -> None:
    packed = PACKED[encoding]
    assert read(packed, encoding, size=size) == BODY
    if encoding not in ("", "identity"):
        assert io.BufferedReader(UnpackedStream(io.BytesIO(packed), encoding, 10**6, lambda e: e)).read() == BODY


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"not packed", "gzip", 400),
        (b"not packed", "deflate", 400),
        (PACKED["gzip"][:-9], "gzip", 400),
        (b"x", "deflate", 400),
        (BODY, "br", 400),
        (PACKED["gzip"], "gzip, gzip", 400),
        (gzip.compress(bytes(10**6 + 1), mtime=0), "gzip", 413),
        (gzip.compress(b"", mtime=0) * 60_000, "gzip", 413),  # unpacks to nothing, without end
        (bytes(10**6 + 1), "", 413),
    ],
)
def test_a_body_that_is_none_or_grows_too_large_is_refused(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(BodyRefused) as refused:
        read(body, encoding)
    assert refused.value.status == status
    if encoding and len(body) < 10**6:
        with pytest.raises(BodyRefused) as refused:
            io.BufferedReader(UnpackedStream(io.BytesIO(body), encoding, 10**6, lambda error: error)).read()
        assert refused.value.status == status


@measured
def test_a_packed_body_is_unpacked_no_further_than_a_body_may_be() -> None:
    """Some kilobytes that unpack to three times the allowed body."""
    packed, most = gzip.compress(bytes(192 * 2**20), 1), 64 * 2**20

    def refused() -> None:
        with pytest.raises(BodyRefused):
            read(packed, "gzip", most, 2**16)
        with pytest.raises(BodyRefused):
            io.BufferedReader(UnpackedStream(io.BytesIO(packed), "gzip", most, lambda error: error)).read()

    assert peak_of(refused) < 3 * most


@pytest.mark.django_db
def test_json_that_is_packed_is_taken_by_rest_and_by_rpc(olivia: Any) -> None:
    api = Caller(olivia)
    body = gzip.compress(json.dumps({"name": "packed", "rows": [ROWS]}).encode())
    assert api.send("post", "datasets", body, {"Content-Encoding": "gzip"}).status_code == 201
    asked = zlib.compress(json.dumps({"jsonrpc": "2.0", "method": "training.list_jobs", "id": 1}).encode())
    assert "result" in api.send("post", "jsonrpc", asked, {"Content-Encoding": "deflate"}).json()
    for path, detail in (("datasets", lambda a: a["detail"]), ("jsonrpc", lambda a: a["error"]["message"])):
        answer = api.send("post", path, b"not packed", {"Content-Encoding": "gzip"})
        assert (answer.status_code, detail(answer.json())) == (400, "The body is no gzip.")


class Doors:
    """A site that is spoken to byte by byte."""

    def __init__(self, url: str, key: str) -> None:
        self.place, self.key = urlsplit(url), key

    def post(
        self, path: str, body: bytes, kind: str = "application/json", *, chunks: int = 7, **headers: str
    ) -> tuple[int, bytes]:
        """Status and body of the answer; ``chunks`` is their size, 0 for a body with a length."""
        head = {
            "host": self.place.netloc,
            "authorization": f"Bearer {self.key}",
            "content-type": kind,
            "accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
            **({"transfer-encoding": "chunked"} if chunks else {"content-length": str(len(body))}),
        }
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        with socket.create_connection((self.place.hostname, self.place.port), timeout=20) as connection:
            connection.sendall("\r\n".join(lines).encode())
            for piece in chunked(body, chunks) if chunks else [body]:
                connection.sendall(piece)
            answer = HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()


def chunked(body: bytes, size: int) -> Iterable[bytes]:
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.django_db(transaction=True)
def test_a_body_in_chunks_or_behind_h2c_arrives_at_every_door(fleet: Fleet, olivia: Any, agent: Agent) -> None:
    """Cloudflare and JavaScript's exporters send in chunks, Java's client asks for h2c first."""
    doors = Doors(f"http://127.0.0.1:{fleet.web()}", api_key_create(Actor(olivia), name="t", scopes=SCOPES)[1])
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).encode()
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"\r\n\r\n'
    file = form + json.dumps(ROWS).encode() + b"\r\n--x--\r\n"
    ways: list[dict[str, Any]] = [
        {"chunks": 7},
        {"chunks": 0, **H2C},
        {"chunks": 7, **H2C},
        {"content_encoding": "gzip"},
    ]
    for number, way in enumerate(ways, 1):
        pack = gzip.compress if "content_encoding" in way else bytes
        rows = json.dumps({"name": f"chunks {number}", "rows": [ROWS]}).encode()
        status, body = doors.post("/api/v1/datasets", pack(rows), **way)
        assert status == 201, body
        status, body = doors.post("/api/v1/datasets", pack(file), "multipart/form-data; boundary=x", **way)
        assert status == 201, body
        traces = json.dumps(export(span(number, at=time.time()), service=agent.slug)).encode()
        assert doors.post("/api/v1/otlp/v1/traces", pack(traces), **way) == (200, b"{}")
        assert WaitingSpan.objects.count() == number
        status, body = doors.post("/api/v1/jsonrpc", pack(hello), **way)
        assert status == 200 and json.loads(body)["error"]["code"] == -32601, body
        status, body = doors.post("/mcp", pack(hello), **way)
        assert status == 200 and json.loads(body)["result"]["tools"], body
        asked = json.dumps({"model": "none-here", "messages": [{"role": "user", "content": "hi"}]}).encode()
        status, body = doors.post("/v1/chat/completions", pack(asked), **way)
        assert status == 404 and b"none-here" in body
    for path in ("/api/v1/datasets", "/api/v1/jsonrpc", "/api/v1/otlp/v1/traces", "/v1/chat/completions", "/mcp"):
        status, body = doors.post(path, b"x" * (66 * 2**20), chunks=2**20)
        assert status == 413, (path, body)
        status, body = doors.post(path, gzip.compress(b"x" * (66 * 2**20), 1), content_encoding="gzip")
        assert status == 413, (path, body)
