"""Programs that call the doors: a REST client and a JSON-RPC client over Django's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from tests.support.openrpc import own_document, result_check


class Caller:
    """Calls with a key of ``person`` (all scopes, or the given ones); without a person, anonymously."""

    def __init__(self, person: Any = None, scopes: Iterable[str] | None = None) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers: dict[str, str] = {}
        if person is not None:
            _, key = api_key_create(Actor(person), name="test", scopes=SCOPES if scopes is None else scopes)
            self.headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", query, headers=self.headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.send("post", path, body, headers)

    def patch(self, path: str, body: Any = None) -> Any:
        return self.send("patch", path, body, {})

    def delete(self, path: str) -> Any:
        return self.send("delete", path, None, {})

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        extra = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        send = getattr(self.client, method)
        return send(f"/api/v1/{path}", raw, content_type="application/json", headers=extra)

    def rpc(self, method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
        """The whole answer of one JSON-RPC request; a result is what the methods' description says of it."""
        response = self.post("jsonrpc", {"jsonrpc": "2.0", "method": method, "params": params or {}, "id": id})
        assert response.status_code == 200, (response.status_code, response.content)
        answer: dict[str, Any] = response.json()
        assert answer["jsonrpc"] == "2.0" and answer["id"] == id
        if "result" in answer:
            result_check(own_document(), method, answer["result"])
        return answer

    def result(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = self.rpc(method, params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def error(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = self.rpc(method, params)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error


def body_of(response: Any) -> bytes:
    """The whole of a streamed answer."""
    return b"".join(response)


def pages(caller: Caller, path: str, **query: Any) -> list[list[Any]]:
    """Every page of a list, by its ``next`` links."""
    found = []
    response = caller.get(path, **query)
    while True:
        assert response.status_code == 200, response.content
        page = response.json()
        found.append(page["results"])
        if not page["next"]:
            return found
        response = caller.client.get(page["next"], headers=caller.headers)
