"""An ASGI application that says which process answered, at which path, and how long the body was."""

from __future__ import annotations

import json
import os
from typing import Any

from agentcore_site.lib import heartbeats


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        heartbeats.heartbeat()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    answer = json.dumps({"pid": os.getpid(), "path": scope["path"], "length": length, "client": scope["client"]})
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer.encode()})
