"""Websocket addresses, and their middleware."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path, re_path

from agentcore_site.jobs.consumers import GONE, JobConsumer
from agentcore_site.jobs.viewers import bearer_of, session_key_of

websocket_urlpatterns = [
    path("ws/jobs/<str:job_id>/", JobConsumer.as_asgi()),
    path("ws/shared/<str:token>/", JobConsumer.as_asgi()),
]


async def unknown(scope: Any, receive: Any, send: Any) -> Any:
    """Closes a socket to any other address. Accepted first: a browser shows a page the code of an open socket only."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": GONE, "reason": "There is nothing under this address."})


class SessionOriginValidator:
    """Checks the Origin of handshakes that come with the console's session cookie, which browsers send by themselves.

    A key, a JWT or a share link is never sent without its holder's will, and programs send no Origin.
    """

    def __init__(self, application: Any) -> None:
        self.application = application
        self.validated = AllowedHostsOriginValidator(application)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        by_cookie = session_key_of(scope) and not bearer_of(scope)
        await (self.validated if by_cookie else self.application)(scope, receive, send)


websocket_application = SessionOriginValidator(URLRouter([*websocket_urlpatterns, re_path("", unknown)]))
