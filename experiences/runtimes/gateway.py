"""A model endpoint for one worker's rollouts of foreign agents: each rollout has a key of its own, good while it lasts.

It speaks OpenAI's chat completions (also streamed) on a port of its own and passes calls to the metered client, so
that whatever framework an agent is written in, its calls are paid for, bounded and recorded as steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from budgets.llm.errors import LLMError, Malformed
from budgets.llm.types import Completion, ToolCall
from experiences.runtimes.base import Halted
from experiences.runtimes.chat_body import BadCall, ChatBody, body_in

if TYPE_CHECKING:
    import uvicorn

MAX_BODY: Final = 4 * 2**20
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Session:
    """One rollout's right to call ``model``; ``call`` makes a call and records it (``experiences.runtimes.http``)."""

    def __init__(self, call: Callable[[ChatBody], Awaitable[Completion]], model: str = "") -> None:
        self.call, self.model = call, model


class RolloutGateway:
    """Serves on ``host`` (a free port); ``advertised`` is the host that agents are told. Belongs to one event loop."""

    def __init__(self, host: str = "127.0.0.1", advertised: str = "") -> None:
        self._host, self._advertised = host, advertised or host
        self._sessions: dict[str, Session] = {}
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.base_url = ""

    @contextlib.asynccontextmanager
    async def session(self, session: Session) -> AsyncIterator[tuple[str, str]]:
        """(base URL, key) for one rollout; afterwards the key opens nothing."""
        await self._start()
        key = f"rollout-{secrets.token_urlsafe(24)}"
        self._sessions[key] = session
        try:
            yield self.base_url, key
        finally:
            del self._sessions[key]

    async def aclose(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
            self._server = self._task = None

    async def _start(self) -> None:
        import uvicorn  # only a worker that plays foreign agents needs a server

        async with self._starting:
            if self._server is not None:
                return
            listener = socket.socket()
            listener.bind((self._host, 0))
            config = uvicorn.Config(
                self._answer,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=2,
            )
            server = uvicorn.Server(config)
            server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]  # signals are the worker's
            self._server = server
            self._task = asyncio.create_task(server.serve(sockets=[listener]))
            self.base_url = f"http://{self._advertised}:{listener.getsockname()[1]}/v1"
            while not server.started:
                await asyncio.sleep(0.005)

    # -- one request ------------------------------------------------------------------------------------------------

    async def _answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._served(scope, receive, send)
        except BadCall as error:
            await _send(send, error.status, _error(str(error), error.kind))
        except Halted as error:
            await _send(send, 503, _error(str(error), error.reason))
        except LLMError as error:
            status = 502 if isinstance(error, Malformed) else error.status or 502
            await _send(send, status, _error(error.message, "upstream_error"))

    async def _served(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Raises BadCall, Halted, LLMError."""
        session = self._of_key(scope)  # before the body: a stranger's is not read
        path, method = scope["path"], scope["method"]
        if path == "/v1/models":
            if method != "GET":
                raise BadCall("Use GET.", 405)
            return await _send(send, 200, _models(session.model))
        if path != "/v1/chat/completions":
            raise BadCall("Only POST /v1/chat/completions and GET /v1/models are served here.", 404)
        if method != "POST":
            raise BadCall("Use POST.", 405)
        body = body_in(await _body(receive))
        session = self._of_key(scope)  # once more: the rollout may have ended while the body came
        completion = await session.call(body)
        if body.stream:
            await _send_stream(send, completion)
        else:
            await _send(send, 200, completion_json(completion))

    def _of_key(self, scope: dict[str, Any]) -> Session:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        key = headers.get("authorization", "").removeprefix("Bearer ").strip()
        session = self._sessions.get(key)
        if session is None:
            raise BadCall("This key is not valid, or its rollout is over.", 401, "authentication_error")
        return session


def completion_json(completion: Completion) -> dict[str, Any]:
    """A completion as OpenAI's API writes it."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
    if completion.tool_calls:
        message["tool_calls"] = [_call_json(call) for call in completion.tool_calls]
    usage = completion.usage
    return {
        "id": completion.request_id or f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": completion.model,
        "choices": [{"index": 0, "message": message, "finish_reason": completion.finish_reason or "stop"}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    }


def _call_json(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw or json.dumps(dict(call.arguments))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


async def _body(receive: Receive) -> bytes:
    read = bytearray()
    while True:
        event = await receive()
        read += event.get("body", b"")
        if len(read) > MAX_BODY:
            raise BadCall(f"The body is larger than {MAX_BODY // 2**20} MB.", 413)
        if not event.get("more_body"):
            return bytes(read)


async def _send(send: Send, status: int, value: Mapping[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def _send_stream(send: Send, completion: Completion) -> None:
    """The whole answer as one stream of events. It was read before: only then is it known what it cost."""
    whole = completion_json(completion)
    base = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    delta = dict(choice["message"])
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for chunk in (
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {"choices": [], "usage": whole["usage"]},
    ):
        line = b"data: " + json.dumps(base | chunk).encode() + b"\n\n"
        await send({"type": "http.response.body", "body": line, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": kind}}


def _models(model: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "agentcore"}]}
