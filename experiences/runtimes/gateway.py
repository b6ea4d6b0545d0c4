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
from typing import Any, Final

import uvicorn

from budgets.llm.errors import LLMError, Malformed
from budgets.llm.types import Completion, Message, ToolCall, ToolSpec
from experiences.runtimes.base import Halted

MAX_BODY: Final = 4 * 2**20
MAX_MESSAGES: Final = 1_000
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class BadCall(Exception):
    """The request is not one that the gateway takes; the message is for the agent's author."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Session:
    """One rollout's right to call a model. ``call`` makes a call and records it; see ``experiences.runtimes.http``."""

    def __init__(self, call: Callable[[dict[str, Any]], Awaitable[Completion]]) -> None:
        self.call = call


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
            session = self._of_key(scope)
            if scope["path"] != "/v1/chat/completions":
                raise BadCall("Only POST /v1/chat/completions is served here.", 404)
            if scope["method"] != "POST":
                raise BadCall("Use POST.", 405)
            body = await _body(receive)
            completion = await session.call(body)
            if body.get("stream"):
                await _send_stream(send, completion)
            else:
                await _send(send, 200, completion_json(completion))
        except BadCall as error:
            await _send(send, error.status, _error(str(error), error.kind))
        except Halted as error:
            await _send(send, 503, _error(str(error), error.reason))
        except LLMError as error:
            status = 502 if isinstance(error, Malformed) else error.status or 502
            await _send(send, status, _error(error.message, "upstream_error"))

    def _of_key(self, scope: dict[str, Any]) -> Session:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        key = headers.get("authorization", "").removeprefix("Bearer ").strip()
        session = self._sessions.get(key)
        if session is None:
            raise BadCall("This key is not valid, or its rollout is over.", 401, "authentication_error")
        return session


def messages_of(body: Mapping[str, Any]) -> list[Message]:
    """The conversation of a request.

    Raises:
        BadCall: it is none that can be passed on.
    """
    given = body.get("messages")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_MESSAGES:
        raise BadCall(f"messages must be a list of 1 to {MAX_MESSAGES:,} messages.")
    return [_message(one, number) for number, one in enumerate(given)]


def tools_of(body: Mapping[str, Any]) -> list[ToolSpec]:
    """Raises BadCall where a tool has no name."""
    found = []
    for one in body.get("tools") or []:
        function = one.get("function") if isinstance(one, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise BadCall("Each tool needs a function with a name.")
        parameters = function.get("parameters")
        found.append(
            ToolSpec(
                function["name"],
                str(function.get("description") or ""),
                parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}},
            )
        )
    return found


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


def _message(one: Any, number: int) -> Message:
    if not isinstance(one, Mapping) or one.get("role") not in {"system", "developer", "user", "assistant", "tool"}:
        raise BadCall(f"Message {number} has no known role.")
    return Message(
        role="system" if one["role"] == "developer" else one["role"],
        content=_text(one.get("content"), number),
        tool_calls=tuple(_call(call, number) for call in one.get("tool_calls") or []),
        tool_call_id=str(one.get("tool_call_id") or ""),
        name=str(one.get("name") or ""),
    )


def _text(content: Any, number: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        raise BadCall(f"Message {number} holds something else than text, which can't be priced in advance.")
    return "".join(map(str, texts))


def _call(call: Any, number: int) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise BadCall(f"Message {number} has a tool call without a function.")
    raw = function.get("arguments")
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        arguments = None
    known = arguments if isinstance(arguments, Mapping) else {}
    return ToolCall(
        str(call.get("id") or ""), str(function.get("name") or ""), known, raw if isinstance(raw, str) else ""
    )


def _call_json(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw or json.dumps(dict(call.arguments))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


async def _body(receive: Receive) -> dict[str, Any]:
    read = b""
    while True:
        event = await receive()
        read += event.get("body", b"")
        if len(read) > MAX_BODY:
            raise BadCall(f"The body is larger than {MAX_BODY // 2**20} MB.", 413)
        if not event.get("more_body"):
            break
    try:
        body = json.loads(read)
    except ValueError:
        raise BadCall("The body is no JSON.") from None
    if not isinstance(body, dict):
        raise BadCall("The body is no JSON object.")
    return body


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
