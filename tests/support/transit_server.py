"""The transit engine of HashiCorp Vault as a server on a socket: encrypt, decrypt, rewrap, and versions of its key."""

from __future__ import annotations

import json
import os
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "hvs.a-token-of-tests"
KEY = "agentcore"


class TransitServer(ThreadingHTTPServer):
    """``asked`` are the operations in order. ``refusing``: the server is sealed, and answers 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys = [AESGCM(os.urandom(32))]
        self.asked: list[str] = []
        self.refusing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def rotate(self) -> None:
        self.keys.append(AESGCM(os.urandom(32)))

    def do(self, what: str, body: dict[str, str]) -> dict[str, Any]:
        self.asked.append(what)
        if what == "encrypt":
            return self._sealed(b64decode(body["plaintext"], validate=True))
        prefix, version, raw = body["ciphertext"].split(":")
        if prefix != "vault":
            raise ValueError("invalid ciphertext: no prefix")
        data = b64decode(raw)
        opened = self.keys[int(version.removeprefix("v")) - 1].decrypt(data[:12], data[12:], None)
        return self._sealed(opened) if what == "rewrap" else {"plaintext": b64encode(opened).decode()}

    def _sealed(self, data: bytes) -> dict[str, Any]:
        nonce, version = os.urandom(12), len(self.keys)
        sealed = b64encode(nonce + self.keys[-1].encrypt(nonce, data, None)).decode()
        return {"ciphertext": f"vault:v{version}:{sealed}", "key_version": version}


class _Handler(BaseHTTPRequestHandler):
    server: TransitServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what, _, key = self.path.removeprefix("/v1/transit/").partition("/")
        if self.server.refusing:
            self._answer(503, {"errors": ["Vault is sealed"]})
        elif self.headers["X-Vault-Token"] != TOKEN:
            self._answer(403, {"errors": ["permission denied"]})
        elif what not in ("encrypt", "decrypt", "rewrap") or key != KEY:
            self._answer(404, {"errors": []})
        else:
            try:
                self._answer(200, {"request_id": "r", "data": self.server.do(what, body)})
            except (InvalidTag, ValueError, IndexError):
                self._answer(400, {"errors": ["invalid ciphertext: unable to decrypt"]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def transit_server() -> Iterator[TransitServer]:
    with TransitServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
