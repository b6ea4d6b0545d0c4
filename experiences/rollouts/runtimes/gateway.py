"""A model endpoint for one worker's rollouts of foreign agents: each rollout has a key of its own, good while it lasts.

It speaks OpenAI's chat completions and its Responses API (both also streamed, text as the model writes it) on a port of
its own and passes calls to the metered client. So calls of agents in any framework are paid for, bounded and
recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from agentcore_site.lib.event_stream import EVENT_STREAM
from agentcore_site.lib.packed_bodies import BodyRefused, body_of
from budgets.llm.caller_errors import caller_error, error_body, retry_headers
from budgets.llm.errors import LLMError
from budgets.llm.transport import OnDelta
from budgets.llm.types import Completion
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.chat_answer import ChatStream, completion_json
from experiences.rollouts.runtimes.chat_body import BadCall, ChatBody, body_in
from experiences.rollouts.runtimes.responses_answer import ResponseStream, response_begun, response_json
from experiences.rollouts.runtimes.responses_body import Item, ResponsesBody, items_of

if TYPE_CHECKING:
    import uvicorn

MODELS: Final = "/v1/models"
MAX_BODY: Final = 4 * 2**20
REFUSALS: Final = (BadCall, Halted, LLMError)
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Whole = TypeVar("Whole", contravariant=True)


class MakesCalls(Protocol):
    """Makes a call and records it (``runtimes.http``). ``on_delta`` gets its text piece by piece."""

    def __call__(self, body: ChatBody, on_delta: OnDelta | None = None) -> Awaitable[Completion]: ...


class Session:
    """One rollout's right to call ``model``.

    It keeps what was said up to each response, so that the next one can go on from there.
    """

    def __init__(self, call: MakesCalls, model: str = "") -> None:
        self.call, self.model = call, model
        self._items: dict[str, Sequence[Item]] = {}

    def items_until(self, response_id: str | None) -> Sequence[Item]:
        """All items up to that response, its own included. Raises BadCall."""
        if response_id is None:
            return ()
        if response_id not in self._items:
            message = f"This rollout keeps no response {response_id[:60]!r}."
            raise BadCall(message, 400, "previous_response_not_found", "previous_response_id")
        return self._items[response_id]

    async def respond(
        self, asked: ResponsesBody, begun: dict[str, Any], on_delta: OnDelta | None = None
    ) -> dict[str, Any]:
        """The answer to a request of the Responses API. Raises what ``call`` raises."""
        before = self.items_until(asked.previous_response_id)
        response = response_json(begun, await self.call(asked.chat(before), on_delta))
        if asked.store is not False:
            self._items[response["id"]] = (*before, *asked.input, *items_of(response["output"]))
        return response


class RolloutGateway:
    """Serves on ``host`` (a free port); ``advertised`` is the host name that agents receive. Belongs to one event
    loop."""

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

        from agentcore_site.lib.timed_requests import TimedRequests

        async with self._starting:
            if self._server is not None:
                return
            listener = socket.socket()
            listener.bind((self._host, 0))
            config = uvicorn.Config(
                self._answer,
                http=TimedRequests,
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
        except REFUSALS as error:
            await _send(send, *_refused(error))

    async def _served(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Raises BadCall, Halted, LLMError."""
        session = self._of_key(scope)  # before the body: one without a key is not read
        path, method = scope["path"].rstrip("/"), scope["method"]
        if path in (MODELS, f"{MODELS}/{session.model}"):
            if method != "GET":
                raise BadCall("Use GET.", 405)
            found = _models(session.model)
            return await _send(send, 200, found if path == MODELS else found["data"][0])
        answer = ANSWERS.get(path)
        if answer is None:
            raise BadCall(f"Only POST {', POST '.join(ANSWERS)} and GET /v1/models are served here.", 404)
        if method != "POST":
            raise BadCall("Use POST.", 405)
        read = await _body(scope, receive)
        session = self._of_key(scope)  # once more: the rollout may have ended while the body came
        await answer(session, read, send)

    def _of_key(self, scope: dict[str, Any]) -> Session:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("authorization") or headers.get("api-key") or headers.get("x-api-key", "")
        key = given.removeprefix("Bearer ").strip()
        session = self._sessions.get(key)
        if session is None:
            raise BadCall("This key is not valid, or its rollout is over.", 401, "authentication_error")
        return session


async def _chat(session: Session, read: bytes, send: Send) -> None:
    body = body_in(read, ChatBody)
    if not body.stream:
        return await _send(send, 200, completion_json(await session.call(body)))
    await _send_stream(send, ChatStream(session.model), partial(session.call, body), _data, b"data: [DONE]\n\n")


async def _responses(session: Session, read: bytes, send: Send) -> None:
    asked = body_in(read, ResponsesBody)
    begun = response_begun(asked, session.model)
    if not asked.stream:
        return await _send(send, 200, await session.respond(asked, begun))
    await _send_stream(send, ResponseStream(begun), partial(session.respond, asked, begun), _named)


ANSWERS: Final = {"/v1/chat/completions": _chat, "/v1/responses": _responses}


async def _body(scope: dict[str, Any], receive: Receive) -> bytes:
    """Raises BadCall."""
    try:
        return await body_of(scope["headers"], receive, MAX_BODY)
    except BodyRefused as refused:
        raise BadCall(str(refused), refused.status) from refused


async def _send(send: Send, status: int, value: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    sent = [(b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


class EventStream(Protocol[Whole]):
    """The events of an answer as an interface writes them."""

    def begin(self) -> Iterator[dict[str, Any]]: ...

    def piece(self, text: str) -> Iterator[dict[str, Any]]: ...

    def end(self, whole: Whole) -> Iterator[dict[str, Any]]: ...

    def failed(self, error: Mapping[str, Any]) -> Iterator[dict[str, Any]]: ...


async def _send_stream(
    send: Send,
    events: EventStream[Whole],
    answer: Callable[[OnDelta], Awaitable[Whole]],
    written: Callable[[Mapping[str, Any]], bytes],
    last: bytes = b"",
) -> None:
    """Sends each piece of the answer as it is made. What goes wrong before the first one is answered by its status,
    what goes wrong later by an event.

    Raises what ``answer`` raises before the first piece.
    """
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    answering = asyncio.ensure_future(answer(pieces.put_nowait))
    answering.add_done_callback(lambda _: pieces.put_nowait(None))
    begun = False

    async def send_all(found: Iterator[Mapping[str, Any]]) -> None:
        nonlocal begun
        if not begun:
            begun = True
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
            await send_all(events.begin())
        body = b"".join(map(written, found))
        await send({"type": "http.response.body", "body": body, "more_body": True})

    try:
        while (piece := await pieces.get()) is not None:
            await send_all(events.piece(piece))
        try:
            whole = await answering
        except REFUSALS as error:
            if not begun:
                raise
            await send_all(events.failed(_refused(error)[1]))
        else:
            await send_all(events.end(whole))
    finally:
        answering.cancel()
    await send({"type": "http.response.body", "body": last})


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)


def _refused(error: Exception) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
    """The status, the body and the headers that say what went wrong with a call."""
    if isinstance(error, BadCall):
        return error.status, error_body(str(error), error.kind, param=error.param), []
    if isinstance(error, Halted):
        return 503, error_body(str(error), error.reason), []
    assert isinstance(error, LLMError)
    found = caller_error(error)
    return found.status, found.body(), retry_headers(found.wait, final=found.final)


def _models(model: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "agentcore"}]}
