"""A model endpoint for one worker's rollouts of foreign agents: each rollout has a key of its own, good while it lasts.

It speaks OpenAI's chat completions and its Responses API (both also streamed) on a port of its own and passes calls to
the metered client, so that calls of agents in any framework are paid for, bounded and recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from budgets.llm.errors import LLMError, Malformed
from budgets.llm.types import Completion
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.chat_answer import completion_chunks, completion_json
from experiences.rollouts.runtimes.chat_body import BadCall, ChatBody, body_in
from experiences.rollouts.runtimes.responses_answer import response_events, response_json
from experiences.rollouts.runtimes.responses_body import Item, ResponsesBody, items_of

if TYPE_CHECKING:
    import uvicorn

MAX_BODY: Final = 4 * 2**20
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Session:
    """One rollout's right to call ``model``; ``call`` makes a call and records it (``runtimes.http``).

    It keeps what was said up to each response, so that the next one can go on from there.
    """

    def __init__(self, call: Callable[[ChatBody], Awaitable[Completion]], model: str = "") -> None:
        self.call, self.model = call, model
        self._said: dict[str, Sequence[Item]] = {}

    def said(self, response_id: str | None) -> Sequence[Item]:
        """All items up to that response, its own included. Raises BadCall."""
        if response_id is None:
            return ()
        if response_id not in self._said:
            message = f"This rollout keeps no response {response_id[:60]!r}."
            raise BadCall(message, 400, "previous_response_not_found", "previous_response_id")
        return self._said[response_id]

    async def respond(self, asked: ResponsesBody) -> dict[str, Any]:
        """The answer to a request of the Responses API. Raises what ``call`` raises."""
        before = self.said(asked.previous_response_id)
        response = response_json(asked, await self.call(asked.chat(before)))
        if asked.store is not False:
            self._said[response["id"]] = (*before, *asked.input, *items_of(response["output"]))
        return response


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
            await _send(send, error.status, _error(str(error), error.kind, error.param))
        except Halted as error:
            await _send(send, 503, _error(str(error), error.reason))
        except LLMError as error:
            status = 502 if isinstance(error, Malformed) else error.status or 502
            await _send(send, status, _error(error.message, "upstream_error"))

    async def _served(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Raises BadCall, Halted, LLMError."""
        session = self._of_key(scope)  # before the body: one without a key is not read
        path, method = scope["path"], scope["method"]
        if path == "/v1/models":
            if method != "GET":
                raise BadCall("Use GET.", 405)
            return await _send(send, 200, _models(session.model))
        answer = ANSWERS.get(path)
        if answer is None:
            raise BadCall(f"Only POST {', POST '.join(ANSWERS)} and GET /v1/models are served here.", 404)
        if method != "POST":
            raise BadCall("Use POST.", 405)
        read = await _body(receive)
        session = self._of_key(scope)  # once more: the rollout may have ended while the body came
        await answer(session, read, send)

    def _of_key(self, scope: dict[str, Any]) -> Session:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        key = headers.get("authorization", "").removeprefix("Bearer ").strip()
        session = self._sessions.get(key)
        if session is None:
            raise BadCall("This key is not valid, or its rollout is over.", 401, "authentication_error")
        return session


async def _chat(session: Session, read: bytes, send: Send) -> None:
    body = body_in(read, ChatBody)
    completion = await session.call(body)
    if not body.stream:
        return await _send(send, 200, completion_json(completion))
    lines = [*(_data(chunk) for chunk in completion_chunks(completion)), b"data: [DONE]\n\n"]
    await _send_stream(send, lines)


async def _responses(session: Session, read: bytes, send: Send) -> None:
    asked = body_in(read, ResponsesBody)
    response = await session.respond(asked)
    if not asked.stream:
        return await _send(send, 200, response)
    events = response_events(response)
    await _send_stream(send, (f"event: {event['type']}\n".encode() + _data(event) for event in events))


ANSWERS: Final = {"/v1/chat/completions": _chat, "/v1/responses": _responses}


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


async def _send_stream(send: Send, lines: Iterable[bytes]) -> None:
    """The whole answer as one stream of events. It was read before: only then is it known what it cost."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for line in lines:
        await send({"type": "http.response.body", "body": line, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _error(message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": kind}}


def _models(model: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "agentcore"}]}
