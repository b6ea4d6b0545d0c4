"""The MCP server (modelcontextprotocol.io, streamable HTTP): the methods of JSON-RPC as tools, for the same callers
with the same rights.

A request needs no session, so any process answers, and nothing is lost with one. Loaded when the first
client comes (``agentcore_site.mcp_path``).
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpResponse
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from rest_framework.exceptions import APIException

from agentcore_site import rpc
from agentcore_site.lib import row_scope, trace_context
from agentcore_site.lib.async_db import in_thread
from agentcore_site.lib.database import TROUBLE, crossed, error_type
from agentcore_site.lib.error_metrics import errors
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.packed_bodies import BodyRefused, body_of
from agentcore_site.middleware import BUSY, wait_seconds
from agentcore_site.rest.jsonrpc import NO_METHOD, Call, Method, RpcError, allowed, failure, method_run
from agentcore_site.rest.openrpc import DISCOVER
from agentcore_site.tenancy.actors import Actor

MOST_BODY: Final = 4 * 2**20  # the protocol package's own limit
ACTOR: Final = "agentcore.actor"  # in the request's scope
AWAY: Final = "The database does not answer. Try again in a minute; look first whether the last call was done."
READ_ONLY: Final = frozenset({"training.get_status", "training.list_jobs", "training.export_trajectories"})
ENDS: Final = frozenset({"training.cancel"})
INSTRUCTIONS: Final = (
    "Trains LLM agents from their own trajectories. A job takes minutes to hours and costs money: say what it may cost"
    " (config.max_budget_usd), start it with training_start_grpo, and look now and then with training_get_status."
)
# By the name of a tool, which knows no dots. Tools describe themselves: the method that describes all is none.
TOOLS: Final[dict[str, str]] = {name.replace(".", "_"): name for name in rpc.METHODS if name != DISCOVER}


class McpServer:
    """An ASGI application."""

    def __init__(self) -> None:
        self._managers: dict[asyncio.AbstractEventLoop, asyncio.Task[StreamableHTTPSessionManager]] = {}
        self._held: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        named = trace_context.request_id.set(trace_context.request_id_of(headers.get(b"x-request-id", "")))
        try:
            if (refusal := await _admitted(scope)) is not None:
                await _send(send, refusal)
                return
            given = trace_context.parsed(headers.get(b"traceparent", ""))
            with trace_context.work(given or trace_context.begun()):
                await (await self._manager()).handle_request(*await _unpacked(scope, receive), send)
        except BodyRefused as error:
            await _send(send, rpc.answer(failure(None, error.status, str(error)), error.status))
        finally:
            trace_context.request_id.reset(named)

    async def _manager(self) -> StreamableHTTPSessionManager:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._managers:
            self._managers = {loop: loop.create_task(self._begun(loop))}
        return await asyncio.shield(self._managers[loop])

    async def _begun(self, loop: asyncio.AbstractEventLoop) -> StreamableHTTPSessionManager:
        made = StreamableHTTPSessionManager(server(), json_response=True, stateless=True)
        ready = loop.create_future()
        # In a context of its own: that of the first caller must not be everyone's.
        held = loop.create_task(_hold(made, ready), context=contextvars.Context())
        self._held.add(held)
        held.add_done_callback(self._held.discard)
        await ready
        return made


async def _unpacked(scope: dict[str, Any], receive: Any) -> tuple[dict[str, Any], Any]:
    """A request whose body is not packed. Raises BodyRefused."""
    if all(name != b"content-encoding" for name, _ in scope["headers"]):
        return scope, receive
    event = {"type": "http.request", "body": await body_of(scope["headers"], receive, MOST_BODY)}
    headers = [pair for pair in scope["headers"] if pair[0] not in (b"content-encoding", b"content-length")]
    events = [event]

    async def replayed() -> Any:
        return events.pop() if events else await receive()

    return scope | {"headers": headers}, replayed


def server() -> Server[Any]:
    version = str(settings.SPECTACULAR_SETTINGS["VERSION"])
    return Server(
        "agentcore",
        version=version,
        title="AgentCore",
        instructions=INSTRUCTIONS,
        on_list_tools=_tools,
        on_call_tool=_called,
    )


async def _hold(manager: StreamableHTTPSessionManager, ready: asyncio.Future[None]) -> None:
    """Until the event loop ends."""
    async with manager.run():
        ready.set_result(None)
        await asyncio.Event().wait()


async def _admitted(scope: dict[str, Any]) -> HttpResponse | None:
    """Puts the caller into the scope; returns the answer to a caller who may not."""
    if scope["method"] != "POST":  # the server sends no messages of its own, so there is no stream to listen to
        return rpc.answer(failure(None, 405, "Send requests with POST."), 405, {"Allow": "POST"})

    def admitted() -> Actor:
        actor = rpc.admit(ASGIRequest(scope, io.BytesIO()))
        _ = actor.organization_ids  # read here: an event loop may not ask the database
        return actor

    try:
        async with _database():
            scope[ACTOR] = await in_thread(admitted)()
    except APIException as error:
        return rpc.refused(error)
    except DomainError as error:
        return rpc.answer(failure(None, error.code, error.message), error.code)
    except TROUBLE as error:
        return rpc.answer(failure(None, 503, _trouble(error)), 503, {"Retry-After": wait_seconds(error)})
    return None


def _trouble(error: BaseException) -> str:
    """The message about the database's trouble, which is counted."""
    errors.labels(error_type=error_type(error), component="web").inc()
    return f"{BUSY} Look whether the last call was done, then try again." if crossed(error) else AWAY


async def _tools(ctx: Any, params: Any) -> types.ListToolsResult:
    """The tools that the caller may use."""
    actor: Actor = ctx.request.scope[ACTOR]
    mine = {tool: name for tool, name in TOOLS.items() if allowed(rpc.METHODS[name], actor)}
    return types.ListToolsResult(tools=[_tool(tool, name, rpc.METHODS[name]) for tool, name in mine.items()])


def _tool(tool: str, name: str, method: Method) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=name in READ_ONLY, destructive_hint=name in ENDS, open_world_hint=False
    )
    schema = method.params.model_json_schema()
    return types.Tool(name=tool, description=method.summary, input_schema=schema, annotations=hints)


async def _called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """The result of JSON-RPC; a refusal is an error of the tool, which a model can read and mend."""
    actor: Actor = ctx.request.scope[ACTOR]
    try:
        if params.name not in TOOLS:
            raise RpcError(NO_METHOD, f"There is no tool {params.name[:100]!r}. Tools: {', '.join(TOOLS)}.")
        call = Call(actor, time.monotonic() + rpc.LONGEST_WAIT)
        async with _database():
            with row_scope.only(*actor.organization_ids):
                found = await method_run(rpc.METHODS, TOOLS[params.name], params.arguments or {}, call)
    except RpcError as error:
        named = (error.data or {}).get("request_id")
        message = f"{error.message} It is {named}." if named else error.message
        return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
    except TROUBLE as error:
        return types.CallToolResult(content=[types.TextContent(text=_trouble(error))], is_error=True)
    text = orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS)
    return types.CallToolResult(
        content=[types.TextContent(text=text.decode())], structured_content=orjson.loads(text), is_error=False
    )


@asynccontextmanager
async def _database() -> AsyncIterator[None]:
    """A thread of its own for what asks the database, whose connection goes back at the end, as Django's requests have
    it."""
    async with ThreadSensitiveContext():
        try:
            yield
        finally:
            await in_thread(close_old_connections)()


async def _send(send: Any, response: HttpResponse) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
