"""The ASGI application: HTTP through Django, websockets through Channels."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")

import django

django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter  # noqa: E402  (after Django is set up)
from django.urls import get_resolver  # noqa: E402

from agentcore_site.lib import gc_freeze, heartbeats  # noqa: E402
from agentcore_site.lib.connection_handover import is_gateway  # noqa: E402
from agentcore_site.lib.request_turns import RequestTurns  # noqa: E402
from agentcore_site.mcp_path import McpPath  # noqa: E402
from agentcore_site.placed import Placed  # noqa: E402
from agentcore_site.request_bodies import BoundedBodies  # noqa: E402
from agentcore_site.routing import websocket_application  # noqa: E402
from agentcore_site.secret_key import require_same_or_exit  # noqa: E402
from evaluation.serving.gateway.application import Gateway  # noqa: E402
from experiences.playbooks.ace.asgi_fast_path import FastContexts  # noqa: E402

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

require_same_or_exit()


gateway = Gateway(FastContexts(McpPath(RequestTurns(BoundedBodies()))))


async def lifespan(scope: object, receive: Receive, send: Send) -> None:
    """Starts the main loop's heartbeat and the gateway's background work with the server, and ends them with it."""
    while (await receive())["type"] != "lifespan.shutdown":
        heartbeats.heartbeat_in_loop()
        gateway.start()
        await send({"type": "lifespan.startup.complete"})
    await gateway.aclose()
    await send({"type": "lifespan.shutdown.complete"})


application = ProtocolTypeRouter(
    {
        "lifespan": lifespan,
        "http": Placed(gateway),
        "websocket": Placed(websocket_application),
    }
)

# Pages are loaded now, not by the first request; the gateway's process gets none. Loaded objects are never collected: a
# full collection would stop all answers for 0.13 s, twice a second under load.
if not is_gateway():
    get_resolver().url_patterns  # noqa: B018
gc_freeze.settle()
