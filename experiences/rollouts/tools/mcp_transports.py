"""Transports of MCP servers: pipes and HTTP, with a limit of bytes read at once.

The package's own transports read a message whole before its size can be checked. Here the one who reads stops at
the limit, and says so (``overflow``); the connection's owner then drops it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from agentcore_site.outbound import OutboundClient, OutboundError, Response

MAX_MESSAGE: Final = 4 * 2**20  # bytes of one message of a server
TOO_LARGE: Final = f"it sent more than {MAX_MESSAGE // 2**20} MB at once"
GRACE_SECONDS: Final = 2.0  # in which a server may end by itself, and again after it was asked to
POLL_SECONDS: Final = 0.01
CONNECTION_HEADERS: Final = frozenset({"host", "connection", "content-length", "transfer-encoding"})

# A server that goes leaves what it started behind; so a shell goes last, and takes the whole group along.
WITH_ITS_CHILDREN: Final = '"$@"; kill -s KILL -- "-$$"'


class MessageTooLarge(httpx2.StreamError):
    """More than ``MAX_MESSAGE`` came at once."""


# -- programs ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stdio_streams(
    command: str, args: Sequence[str], variables: Mapping[str, str], overflow: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Starts a server and speaks JSON lines with it. On leaving it is ended, with all that it started.

    Raises:
        FileNotFoundError: there is no such program.
    """
    if shutil.which(command) is None:
        raise FileNotFoundError(f"there is no program {command!r}")
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        *("-c", WITH_ITS_CHILDREN, "sh", command, *args),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,  # its log may contain secrets
        env=get_default_environment() | dict(variables),
        limit=MAX_MESSAGE,
        start_new_session=True,
    )
    arriving, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_read = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as pipes:
        pipes.start_soon(_read, process, arriving, overflow)
        pipes.start_soon(_write, process, outgoing_read, arriving)
        try:
            yield arrived, outgoing
        finally:
            with anyio.CancelScope(shield=True):  # or the process would outlive us; each wait is bounded
                outgoing.close()
                await _ended(process)
                for stream in (arriving, arrived, outgoing_read):
                    stream.close()
            pipes.cancel_scope.cancel()


async def _read(process: Process, arriving: Any, overflow: Callable[[], None]) -> None:
    assert process.stdout is not None
    async with arriving:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            while True:
                try:
                    line = await process.stdout.readuntil(b"\n")
                except asyncio.IncompleteReadError:
                    return
                except asyncio.LimitOverrunError:
                    return overflow()
                await arriving.send(_message(line))


def _message(line: bytes) -> SessionMessage | Exception:
    """A message, or the error of an unreadable one, which is passed on: the session reports it."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
    except ValueError as error:
        return error


async def _write(process: Process, asked: Any, arriving: Any) -> None:
    assert process.stdin is not None
    try:
        async with asked:
            async for message in asked:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(f"{line}\n".encode())
                await process.stdin.drain()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await arriving.aclose()  # the session has to see that the server is gone


async def _ended(process: Process) -> None:
    """Closes its input, then asks it to end, then ends its group."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _gone(process):
        _to_group(process, signal.SIGTERM)
        await _gone(process)
        _to_group(process, signal.SIGKILL)  # what ignored the signal; the shell may be gone already
        await _gone(process)
    transport = getattr(process, "_transport", None)  # else its pipes stay open until garbage collection
    if transport is not None:
        transport.close()


async def _gone(process: Process) -> bool:
    # Not process.wait(): that also waits for pipes which a child may hold open.
    with anyio.move_on_after(GRACE_SECONDS):
        while process.returncode is None:
            await anyio.sleep(POLL_SECONDS)
    return process.returncode is not None


def _to_group(process: Process, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


# -- HTTP -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def http_streams(
    url: str,
    headers: Mapping[str, str],
    timeout_s: float,
    overflow: Callable[[], None],
    answered: Callable[[httpx2.Response], Any],
) -> AsyncIterator[tuple[Any, Any]]:
    """Speaks streamable HTTP. ``answered`` sees each response before its body is read."""
    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(timeout_s),
            trust_env=False,
            transport=_Bounded(timeout_s, overflow),
            event_hooks={"response": [answered]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Hands the package's requests to the outbound client, and counts what comes of each answer. The standing stream
    of a session (GET) is bounded by event, not as a whole. ``timeout_s`` limits the head of an answer; the calls
    themselves are limited by their callers."""

    def __init__(self, timeout_s: float, overflow: Callable[[], None]) -> None:
        self._timeout_s = timeout_s
        self._overflow = overflow
        self._client = OutboundClient(connect_s=timeout_s)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: value for name, value in request.headers.items() if name not in CONNECTION_HEADERS}
        body = await request.aread()
        try:
            async with asyncio.timeout(self._timeout_s):
                target = self._client.target(str(request.url))
                response = await self._client.send(request.method, target, headers=headers, body=body or None)
        except TimeoutError:
            raise httpx2.ReadTimeout("the server does not answer", request=request) from None
        except OutboundError as error:
            raise httpx2.ConnectError(str(error), request=request) from None
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            response.close()
            raise httpx2.DecodingError("the answer is compressed, though that was not asked for", request=request)
        stream = _Counted(response, self._overflow if request.method == "POST" else None)
        return httpx2.Response(response.status, headers=list(response.headers.items()), stream=stream, request=request)

    async def aclose(self) -> None:
        await self._client.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The body of an answer, of at most ``MAX_MESSAGE`` bytes where there is an ``overflow`` to call."""

    def __init__(self, response: Response, overflow: Callable[[], None] | None) -> None:
        self._response, self._overflow = response, overflow

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        try:
            while (piece := await self._response.piece()) is not None:
                read += len(piece)
                if self._overflow is not None and read > MAX_MESSAGE:
                    self._overflow()
                    raise MessageTooLarge(TOO_LARGE)
                yield piece
        except OutboundError as error:
            raise httpx2.ReadError(str(error)) from None

    async def aclose(self) -> None:
        self._response.close()
