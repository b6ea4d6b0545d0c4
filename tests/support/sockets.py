"""A websocket client that speaks ASGI to an application, without a server between."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator


class Socket(ApplicationCommunicator):
    """Connects to ``path`` of an ASGI application as ``user`` with ``headers``."""

    def __init__(self, application: Any, path: str, *, user: Any, headers: dict[str, str]) -> None:
        where, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": where,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": [],
            "user": user,
        }
        super().__init__(application, scope)

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
