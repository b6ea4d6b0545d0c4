"""A websocket client that speaks ASGI to the application as it is served, without a server between."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from agentcore_site.routing import websocket_application


class Socket(ApplicationCommunicator):
    """Connects to ``path`` with ``headers``."""

    def __init__(self, path: str, **headers: str) -> None:
        where, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": where,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": [],
            "client": ("127.0.0.1", 40_000),
        }
        super().__init__(websocket_application, scope)

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(5))["type"] == "websocket.accept"

    async def receive_json(self) -> dict[str, Any]:
        message = await self.receive_output(5)
        assert message["type"] == "websocket.send", message
        return dict(json.loads(message["text"]))

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)

    async def closed(self, seconds: float = 5) -> int:
        """The code of the close, after any earlier messages."""
        while (message := await self.receive_output(seconds))["type"] != "websocket.close":
            pass
        return int(message["code"])


@sync_to_async
def browser_headers(user: Any) -> dict[str, str]:
    """The handshake headers of a signed-in person's browser on a page of ours."""
    client = Client()
    client.force_login(user)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}", "origin": "http://localhost:8000"}
