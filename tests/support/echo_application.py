"""An ASGI application that says which process answered, at which path, and how long the body was. A path that ends
with ``/stream/N`` says so after N pieces of a stream, one each tenth of a second; a websocket stays open."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from agentcore_site.lib import heartbeats


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        heartbeats.heartbeat_in_loop()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    answer = json.dumps({"pid": os.getpid(), "path": scope["path"], "length": length, "client": scope["client"]})
    _, streams, pieces = scope["path"].rpartition("/stream/")
    headers = [] if streams else [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(int(pieces) if streams else 0):
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": answer.encode()})
