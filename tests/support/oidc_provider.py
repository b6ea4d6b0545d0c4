"""A provider of OpenID Connect on a real socket: it signs by RS256, publishes its keys, and checks what a client has to
send. Its person is always signed in there and agrees."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "agentcore", "a secret: with / and %"


class Provider:
    """``person`` is what it says of its person, ``beside`` what only ``userinfo`` says; ``token`` changes the claims of
    the next ID tokens, ``answer`` what the browser brings back."""

    def __init__(self) -> None:
        self.person: dict[str, Any] = {}
        self.beside: dict[str, Any] = {}
        self.token: dict[str, Any] = {}
        self.answer: dict[str, str] = {}
        self.described: dict[str, Any] = {}
        self.asked: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.issuer = ""
        self.rotate()

    def rotate(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.kid = secrets.token_hex(4)

    @property
    def description(self) -> dict[str, Any]:
        places = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "jwks_uri": "/keys",
            "userinfo_endpoint": "/userinfo",
        }
        return {"issuer": self.issuer} | {name: self.issuer + path for name, path in places.items()} | self.described

    @property
    def keys(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [public | {"kid": self.kid, "use": "sig", "alg": "RS256"}]}

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= self.person | self.token
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": self.kid})

    def authorize(self, query: dict[str, str]) -> str:
        assert query["response_type"] == "code" and query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256" and "openid" in query["scope"].split()
        self.asked.append(query)
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']} | self.answer)}"

    def tokens(self, form: dict[str, str], authorization: str) -> dict[str, str] | None:
        begun = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        pair = base64.b64encode(b"agentcore:a%20secret%3A%20with%20%2F%20and%20%25").decode()
        if (
            begun is None
            or challenge != begun["code_challenge"]
            or form["redirect_uri"] != begun["redirect_uri"]
            or authorization != f"Basic {pair}"
        ):
            return None
        return {"id_token": self.id_token(begun["nonce"]), "access_token": "opens-userinfo", "token_type": "Bearer"}


@contextmanager
def provider_running() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif parts.path == "/.well-known/openid-configuration":
                self.say(provider.description)
            elif parts.path == "/keys":
                self.say(provider.keys)
            elif parts.path == "/userinfo" and self.headers["authorization"] == "Bearer opens-userinfo":
                self.say({"sub": provider.person["sub"]} | provider.beside)
            else:
                self.say({"error": "not here"}, 404)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(raw).items()}
            given = provider.tokens(form, self.headers["authorization"] or "")
            self.say(given or {"error": "invalid_grant"}, 200 if given else 400)

        def say(self, body: dict[str, Any], status: int = 200) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
