"""The gateway as an ASGI application in front of Django: ``/v1`` in the form of OpenAI's API.

It bypasses Django's middleware, and reads the database in threads. All other paths go on to Django.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any, Final

import orjson

from agentcore_site.lib import trace_context
from agentcore_site.lib.database import trouble_in
from agentcore_site.lib.event_stream import EVENT_STREAM
from agentcore_site.lib.packed_bodies import BodyRefused, body_of
from agentcore_site.tenancy.addresses import lies_in, socket_address
from budgets.llm.caller_errors import error_body, retry_headers
from evaluation.serving.gateway.calls import Calls
from evaluation.serving.gateway.calls_at_once import AtOnceFull, CallSource
from evaluation.serving.gateway.chat_answers import ChatInterface, StreamedAnswer
from evaluation.serving.gateway.consumers import Consumer, Consumers
from evaluation.serving.gateway.cross_origin import crossing, preflight
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.loop_calls import calls_end, calls_shared
from evaluation.serving.gateway.passed_fields import fields_check, images_check
from evaluation.serving.gateway.refusals import CallRefused
from evaluation.serving.gateway.responses import KEPT, ResponsesInterface, StreamedResponse
from evaluation.serving.gateway.served_models import AGENT, names_served
from experiences.rollouts.runtimes.chat_body import BadCall

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PREFIX: Final = "/v1/"
INTERFACES: Final[Mapping[str, type[ChatInterface] | type[ResponsesInterface]]] = {
    "/v1/chat/completions": ChatInterface,
    "/v1/responses": ResponsesInterface,
}
WITHOUT_PREFIX: Final = frozenset(one.removeprefix("/v1") for one in INTERFACES)
MODELS: Final = "/v1/models"
RESPONSE: Final = "/v1/responses/"
KEY_HEADERS: Final = (b"api-key", b"x-api-key")
MAX_BODY: Final = 20 * 2**20  # images are part of it
JSON: Final = (b"content-type", b"application/json")
SESSION: Final = (b"x-session-id", b"x-agentcore-session")
TRACE: Final = b"traceparent"  # of W3C: version-trace-span-flags
NO_KEY: Final = "Send a key as Authorization: Bearer ac_…; make one with the scope gateway:call."


class Gateway:
    """An ASGI application in front of another one."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind
        self._consumers = Consumers()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if not scope["path"].startswith(PREFIX):
            if scope.get("method") == "POST" and scope["path"].rstrip("/") in WITHOUT_PREFIX:
                why = f"There is no {scope['path']} here. The base URL of a client ends with {PREFIX[:-1]}."
                await _refuse(send, CallRefused(404, why, "not_found", final=True))
                return
            await self._behind(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        begun = False
        send = crossing(send, headers)
        if scope.get("method") == "OPTIONS":
            await preflight(send)
            return

        async def send_on(message: dict[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            consumer = await self._consumer(scope, headers)
            given = trace_context.parsed(headers.get(TRACE, b"").decode("latin-1"))
            with trace_context.work(given or trace_context.begun()):
                await self._route(scope, headers, consumer, receive, send_on)
        except BadCall as error:
            await _refuse(send, CallRefused(error.status, str(error), error.kind, param=error.param or ""))
        except AtOnceFull as error:
            await _refuse(send, CallRefused(429, str(error), "rate_limit_error", wait=1.0))
        except CallRefused as error:
            await _refuse(send, error)
        except asyncio.CancelledError:  # the server ends, and the time that it gave its calls is over
            if begun:
                raise
            await _refuse(send, CallRefused(503, "The server restarts: send the call again.", "unavailable", wait=1.0))
        except Exception as error:
            if begun or trouble_in(error) is None:
                raise
            await _refuse(send, CallRefused(503, "The database is unavailable.", "unavailable", wait=5.0))

    @property
    def calls(self) -> Calls:
        """The calls of the running event loop."""
        return calls_shared(asyncio.get_running_loop())

    def start(self) -> None:
        """Begins the background work before the first call: what a process that ended has left is finished."""
        assert self.calls

    async def aclose(self) -> None:
        """Settles and stores the work of all calls that ended."""
        await calls_end()

    async def _consumer(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> Consumer:
        """Raises CallRefused."""
        token = _key(headers)
        found = await self._consumers.of(token) if token else None
        if found is None:
            raise CallRefused(401, f"This key is not valid. {NO_KEY}" if token else NO_KEY, "authentication_error")
        if found.addresses and not lies_in(socket_address(scope), found.addresses):
            raise CallRefused(401, "This key may not be used from your address.", "authentication_error")
        if found.fault:
            raise CallRefused(403, found.fault, "permission_error")
        return found

    async def _route(
        self, scope: dict[str, Any], headers: dict[bytes, bytes], consumer: Consumer, receive: Any, send: Any
    ) -> None:
        """Raises CallRefused, BadCall."""
        path, method = scope["path"].rstrip("/"), scope["method"]
        if path == MODELS or path.startswith(f"{MODELS}/"):
            _only(method, "GET")
            await _send(send, 200, await _models(consumer, path.removeprefix(MODELS)[1:]), [])
        elif interface := INTERFACES.get(path):
            _only(method, "POST")
            caller = CallSource(str(consumer.key_id or ""), str(consumer.organization_id), socket_address(scope))
            with self.calls.at_once.counted("calls", caller):
                await self.calls.admit(consumer)
                asked = interface(await _body(scope, receive))
                streams = self.calls.at_once.counted("streams", caller) if asked.request.stream else nullcontext()
                with streams:
                    await _for_caller(receive, self._answer(headers, consumer, asked, send))
        elif path.startswith(RESPONSE):
            raise CallRefused(404, f"There is no {path[:80]} here. {KEPT}", "not_found")
        else:
            known = ", ".join([*(f"POST {one}" for one in INTERFACES), f"GET {MODELS}"])
            raise CallRefused(404, f"There is no {path[:80]} here; there is {known}.", "not_found")

    async def _answer(
        self, headers: dict[bytes, bytes], consumer: Consumer, asked: ChatInterface | ResponsesInterface, send: Any
    ) -> None:
        """Raises CallRefused, BadCall: nothing was sent."""
        request, calls = asked.request, self.calls
        model = await calls.model(consumer.organization_id, request.model)
        call = calls.begin(consumer, request, model, _session(headers) or request.user)
        endpoints = {one.name: one.endpoint for one in call.upstreams}
        fields_check(request.body, endpoints)
        if request.fetched_images:
            await asyncio.to_thread(images_check, request.fetched_images, endpoints)
        if request.stream:
            await _stream(calls, call, asked.streamed(call), send)
            return
        answer = asked.whole(call)
        done = await _answered(calls, call, answer)
        await _send_bytes(send, 200, answer.sent(done), [JSON, *call.headers])


def _key(headers: Mapping[bytes, bytes]) -> str:
    """The caller's key, as OpenAI's, Azure's or Anthropic's clients send theirs."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return next((headers[name].decode("latin-1").strip() for name in KEY_HEADERS if headers.get(name)), "")


def _session(headers: dict[bytes, bytes]) -> str:
    """The caller's name for a group of requests."""
    for name in SESSION:
        if found := headers.get(name):
            return found.decode("latin-1").strip()[:200]
    parts = headers.get(TRACE, b"").decode("latin-1").split("-")
    return parts[1] if len(parts) == 4 else ""


async def _for_caller(receive: Any, answering: Coroutine[Any, Any, None]) -> None:
    """Cancels ``answering``, and with it the upstream's call, when the caller disconnects. Raises what it raises."""
    work, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(_disconnected(receive))
    leaving.add_done_callback(lambda _: work.cancel())
    try:
        await work
    except asyncio.CancelledError:
        if not leaving.done():
            raise
    finally:
        leaving.cancel()


async def _disconnected(receive: Any) -> None:
    """Returns when the connection is closed; the body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answered(calls: Calls, call: GatewayCall, answer: Any) -> dict[str, Any] | None:
    """``Calls.answer``, with the call's headers on a refusal. Raises CallRefused."""
    try:
        return await calls.answer(call, answer)
    except CallRefused as refused:
        refused.headers = call.headers
        raise


async def _stream(calls: Calls, call: GatewayCall, answer: StreamedAnswer | StreamedResponse, send: Any) -> None:
    """Sends each piece as it comes. A failure before the first piece has its HTTP status; a later one is an event.

    Raises CallRefused: nothing was sent.
    """
    answering = asyncio.ensure_future(_answered(calls, call, answer))
    answering.add_done_callback(lambda _: answer.pieces.end())
    begun = False

    async def send_piece(body: bytes) -> None:
        nonlocal begun
        if not begun:
            begun = True
            headers = [*EVENT_STREAM, *call.headers]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})

    try:
        async for piece in answer.pieces:
            await send_piece(piece)
        try:
            done = await answering
        except CallRefused as refused:
            if not begun:
                raise
            await send_piece(answer.failed(_error(refused)))
        else:
            await send_piece(answer.rest(done))
    finally:
        answering.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _models(consumer: Consumer, wanted: str) -> dict[str, Any]:
    """All models that answer, or the one that is wanted. Raises CallRefused."""
    from asgiref.sync import sync_to_async

    names = await sync_to_async(names_served)(consumer.organization_id)
    rows = [
        {"id": name, "object": "model", "created": 0, "owned_by": "agentcore" if name.startswith(AGENT) else "endpoint"}
        for name in names
    ]
    if not wanted:
        return {"object": "list", "data": rows}
    if (row := next((row for row in rows if row["id"] == wanted), None)) is None:
        why = f"There is no model {wanted[:80]!r} here. GET {MODELS} lists those that there are."
        raise CallRefused(404, why, "model_not_found", param="model")
    return row


def _only(method: str, wanted: str) -> None:
    if method != wanted:
        raise CallRefused(405, f"Use {wanted}.", "invalid_request_error")


async def _body(scope: dict[str, Any], receive: Any) -> bytes:
    """Raises CallRefused."""
    try:
        return await body_of(scope["headers"], receive, MAX_BODY)
    except BodyRefused as refused:
        raise CallRefused(refused.status, str(refused), "invalid_request_error") from refused


def _error(refused: CallRefused) -> dict[str, Any]:
    return error_body(refused.message, refused.kind, refused.code, refused.param)


async def _refuse(send: Any, refused: CallRefused) -> None:
    headers = retry_headers(refused.wait, final=refused.final)
    await _send(send, refused.status, _error(refused), [*refused.headers, *headers])


async def _send(send: Any, status: int, value: dict[str, Any], headers: Headers) -> None:
    await _send_bytes(send, status, orjson.dumps(value), [JSON, *headers])


async def _send_bytes(send: Any, status: int, body: bytes, headers: Headers) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
