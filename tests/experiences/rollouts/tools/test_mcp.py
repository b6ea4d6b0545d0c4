"""Tools of real MCP servers on both transports: named, bounded, never raising, and no process left behind."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from experiences.rollouts.tools.base import ToolResult
from experiences.rollouts.tools.connection_pool import ConnectionPool
from experiences.rollouts.tools.mcp import MCPFailure, MCPPool, MCPServer, MCPTools, _safe_name
from experiences.rollouts.tools.mcp_transports import MAX_MESSAGE
from experiences.rollouts.tools.toolset import Toolset
from tests.support import mcp_server
from tests.support.mcp_server import MCPHTTP

pytestmark = pytest.mark.slow(reason="starts MCP servers, each of which imports the protocol")

PROGRAM = (sys.executable, mcp_server.PATH)


def local(*args: str, **changes: Any) -> MCPServer:
    values = {"name": "local", "transport": "stdio", "command": PROGRAM[0], "args": (PROGRAM[1], *args)}
    return MCPServer(**{**values, "timeout_s": 20.0, **changes})


def allowing(*servers: MCPServer, **more: Any) -> MCPTools:
    return MCPTools(servers, commands=[PROGRAM], **more)


def alive(pid: int) -> bool:
    """True if the process runs; a dead one that its parent has not collected yet doesn't."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> bool:
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return not any(alive(pid) for pid in pids)


PROGRAM_EACH = pytest.mark.thorough(reason="the same with a program for each; tests below start programs too")


@pytest.fixture(params=[pytest.param("stdio", marks=PROGRAM_EACH), "http", "stateless", "legacy"])
async def toolset(request: pytest.FixtureRequest) -> AsyncIterator[Toolset]:
    if request.param == "stdio":
        async with allowing(local(name="test")) as mcp:
            yield Toolset(await mcp.tools(), max_output=1_000)
        return
    with MCPHTTP(stateless=request.param == "stateless", legacy=request.param == "legacy") as server:
        async with MCPTools([MCPServer("test", "http", url=server.url)]) as mcp:
            yield Toolset(await mcp.tools(), max_output=1_000)


# -- calling ----------------------------------------------------------------------------------------------------------


async def test_client_lists_tools_with_their_schemas_and_calls_them(toolset: Toolset) -> None:
    specs = {spec.name: spec for spec in toolset.specs}
    assert {"test__add", "test__text_shout_it", "test__fail"} <= set(specs)
    assert specs["test__add"].description == "Adds two numbers."
    assert set(specs["test__add"].parameters["properties"]) == {"a", "b"}
    assert await toolset.call("test__add", {"a": 17, "b": 25}) == ToolResult(True, "42")
    assert await toolset.call("test__text_shout_it", {"text": "ho"}) == ToolResult(True, "HO")
    assert '"city": "Oslo"' in (await toolset.call("test__weather", {"city": "Oslo"})).output


async def test_client_makes_a_failed_result_of_any_error(toolset: Toolset) -> None:
    failed = await toolset.call("test__fail", {})
    assert not failed.ok and "the disk is full" in failed.error
    wrong = await toolset.call("test__add", {"a": "many"})
    assert not wrong.ok and wrong.error
    seen = await toolset.call("test__picture", {})
    assert (seen.ok, seen.error) == (False, "the result holds no text, only: image")
    cut = await toolset.call("test__big", {"size": 50_000})
    assert cut.output.endswith("[cut: 50,000 characters]") and len(cut.output) < 1_100
    assert (await toolset.call("test__add", {"a": 1, "b": 1})).output == "2"


async def test_client_serves_many_rollouts_at_once(toolset: Toolset) -> None:
    found = await asyncio.gather(*(toolset.call("test__add", {"a": n, "b": n}) for n in range(20)))
    assert [result.output for result in found] == [str(2 * n) for n in range(20)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_client_gives_up_on_a_call_that_takes_too_long(transport: str) -> None:
    with MCPHTTP() as server:
        url = {} if transport == "stdio" else {"transport": "http", "url": server.url}
        async with allowing(local(**url)) as mcp:
            tools = Toolset(await mcp.tools())
            [peer] = mcp._peers.values()
            object.__setattr__(peer.server, "timeout_s", 0.3)
            late = await tools.call("local__slow", {"seconds": 30})
            assert late == ToolResult(False, "", "timeout: no result within 0.3 s")
            object.__setattr__(peer.server, "timeout_s", 20.0)  # on a busy machine a quick call takes longer than 0.3 s
            assert (await tools.call("local__add", {"a": 1, "b": 1})).output == "2"


async def test_client_survives_a_rollout_that_is_cancelled_during_a_call(toolset: Toolset) -> None:
    call = asyncio.create_task(toolset.call("test__slow", {"seconds": 30}))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await toolset.call("test__add", {"a": 1, "b": 1})).output == "2"


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_result_larger_than_the_limit_fails_with_the_reason_and_the_next_call_works(transport: str) -> None:
    with MCPHTTP() as server:
        url = {} if transport == "stdio" else {"transport": "http", "url": server.url}
        async with allowing(local(**url)) as mcp:
            tools = Toolset(await mcp.tools())
            fits = await tools.call("local__big", {"size": MAX_MESSAGE // 4})
            assert fits.ok, fits.error
            late = await tools.call("local__big", {"size": 5 * MAX_MESSAGE})
            assert late.error == "local: it sent more than 4 MB at once; the next call connects again"
            assert (await tools.call("local__add", {"a": 1, "b": 1})).output == "2"


async def test_no_more_of_a_program_is_read_than_the_limit(tmp_path: Path) -> None:
    count = tmp_path / "count"
    async with allowing(local("--flood", str(count))) as mcp:
        with pytest.raises(MCPFailure, match="local: it can't be connected: it sent more than 4 MB at once"):
            await mcp.tools()
    assert int(count.read_text()) <= 2 * MAX_MESSAGE + 2**20  # what lies in the pipes is not ours


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_no_more_of_an_http_answer_is_read_than_the_limit(kind: str) -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {2**30}\r\n\r\n".encode())
        with suppress(ConnectionError):
            while sent < 100 * 2**20:
                writer.write(b"x" * 65_536)
                await writer.drain()
                sent += 65_536
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with MCPTools([MCPServer("far", "http", url=url, timeout_s=5)]) as mcp:
        with pytest.raises(MCPFailure, match="far: it can't be connected: it sent more than 4 MB at once"):
            await mcp.tools()
    server.close()
    assert MAX_MESSAGE <= sent <= 3 * MAX_MESSAGE


async def test_a_compressed_answer_is_not_unfolded() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"accept-encoding: identity" in head.lower()
        body = gzip.compress(b"x" * 100_000)
        kind = "content-type: application/json\r\ncontent-encoding: gzip"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with MCPTools([MCPServer("far", "http", url=url, timeout_s=5)]) as mcp:
        with pytest.raises(MCPFailure, match="far: it can't be connected"):
            await mcp.tools()
    server.close()


# -- lists that are odd ------------------------------------------------------------------------------------------------

LISTING = """
import json, sys
pages, cursor, asked = json.loads(sys.argv[1]), json.loads(sys.argv[2]), 0
for line in sys.stdin:
    call = json.loads(line)
    if "id" not in call:
        continue
    if call["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "odd", "version": "1"}
    elif call["method"] == "tools/list":
        result = {"tools": pages[min(asked, len(pages) - 1)]} | ({} if cursor is None else {"nextCursor": cursor})
        asked += 1
    elif call["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "good"}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""
GOOD = {"name": "good", "inputSchema": {"type": "object"}}


def listing(pages: list[Any], cursor: str | None = None, **changes: Any) -> MCPTools:
    args = ("-c", LISTING, json.dumps(pages), json.dumps(cursor))
    server = MCPServer("odd", "stdio", command=sys.executable, args=args, timeout_s=20.0, **changes)
    return MCPTools([server], commands=[(sys.executable, "-c")])


@pytest.mark.parametrize(
    ("bad", "named", "reason"),
    [
        ({"name": "bad", "inputSchema": {}}, "bad", "it has no inputSchema"),
        ({"name": "bad"}, "bad", "it has no inputSchema"),
        ({"name": "bad", "inputSchema": None}, "bad", "it has no inputSchema"),
        ({"name": "bad", "inputSchema": {"type": "string"}}, "bad", 'not of "type": "object"'),
        ({"name": "bad", "inputSchema": "object"}, "bad", 'not of "type": "object"'),
        (
            {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "int"}}}},
            "bad",
            "is none: 'int'",
        ),
        ({"name": "bad", "description": 7, "inputSchema": {"type": "object"}}, "bad", "description: "),
        ({"name": "", "inputSchema": {"type": "object"}}, "number 1", "it has no name"),
        ({"inputSchema": {"type": "object"}}, "number 1", "it has no name"),
        ("bad", "number 1", "it is no object"),
        ({"name": "good", "description": "x", "inputSchema": {"type": "object"}}, "good", "another tool of this name"),
    ],
)
async def test_an_odd_tool_costs_that_tool_and_is_named(bad: Any, named: str, reason: str) -> None:
    async with listing([[bad, GOOD]]) as mcp:
        [tool] = await mcp.tools()
        assert tool.remote == "good" and await tool.run({}) == ToolResult(True, "good", "")
        assert set(mcp.odd) == {named} and reason in mcp.odd[named]


async def test_a_wanted_tool_that_is_odd_is_refused_with_the_reason() -> None:
    async with listing([[{"name": "bad"}, GOOD]], tools=("bad",)) as mcp:
        with pytest.raises(MCPFailure, match="odd: it has no usable tool 'bad': it has no inputSchema"):
            await mcp.tools()


async def test_a_list_whose_pages_lead_in_a_circle_ends() -> None:
    second = {**GOOD, "name": "second"}
    async with listing([[GOOD], [second]], "again") as mcp:
        assert [tool.remote for tool in await mcp.tools()] == ["good", "second"] and mcp.odd == {}


TEXT = {"type": "text", "text": "good"}


@pytest.mark.parametrize(
    ("result", "read"),
    [
        ({"content": [TEXT]}, ToolResult(True, "good", "")),  # the schema of GOOD asks for more
        ({"content": [TEXT], "structuredContent": {"a": "x"}}, ToolResult(True, "good", "")),
        ({"content": [TEXT], "isError": None}, ToolResult(True, "good", "")),
        (
            {"content": [TEXT, {"type": "json", "json": {"a": 1}}]},
            ToolResult(True, 'good\n{"type": "json", "json": {"a": 1}}', ""),
        ),
        ({"content": [{"type": "text", "text": None}, TEXT]}, ToolResult(True, "good", "")),
        ({"content": "good"}, ToolResult(True, "good", "")),
        ({"content": ["good"]}, ToolResult(True, "good", "")),
        ({"content": TEXT}, ToolResult(True, "good", "")),
        ({"content": None, "structuredContent": {"a": 1}}, ToolResult(True, '{"a": 1}', "")),
        ({"structuredContent": {"a": 1}}, ToolResult(True, '{"a": 1}', "")),
        ({"content": [], "structuredContent": [1, 2]}, ToolResult(True, "[1, 2]", "")),
        ({"content": [TEXT], "structuredContent": None}, ToolResult(True, "good", "")),
        ({"toolResult": "good"}, ToolResult(True, "good", "")),
        ({"content": "the disk is full", "isError": True}, ToolResult(False, "", "the disk is full")),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
            ToolResult(True, "a: file:///a", ""),
        ),
    ],
)
async def test_an_odd_part_of_a_result_costs_no_result(result: dict[str, Any], read: ToolResult) -> None:
    strict = GOOD | {"outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    program = LISTING.replace('{"content": [{"type": "text", "text": "good"}]}', f"json.loads({json.dumps(result)!r})")
    args = ("-c", program, json.dumps([[strict]]), "null")
    server = MCPServer("odd", "stdio", command=sys.executable, args=args, timeout_s=20.0)
    async with MCPTools([server], commands=[(sys.executable, "-c")]) as mcp:
        [tool] = await mcp.tools()
        assert await tool.run({}) == read


# -- what may be used -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "commands", [[], [()], [("/bin/other",)], [(sys.executable, "-m")], [(*PROGRAM, "--stubborn")]]
)
def test_client_starts_no_program_that_is_not_allowed(commands: list[tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="not allowed to be started"):
        MCPTools([local()], commands=commands)


async def test_client_offers_only_the_tools_that_may_be_used() -> None:
    async with allowing(local(tools=("add", "pid"))) as mcp:
        tools = Toolset(await mcp.tools())
        assert [spec.name for spec in tools.specs] == ["local__add", "local__pid"]
        assert "no tool 'local__die'" in (await tools.call("local__die", {})).error
    async with allowing(local(tools=("add", "fly"))) as mcp:
        with pytest.raises(MCPFailure, match="has no tool 'fly'"):
            await mcp.tools()


async def test_client_passes_on_only_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-of-this-process")
    server = local(variables={"TOKEN": "t"})
    assert "TOKEN" not in repr(server)
    async with allowing(server) as mcp:
        tools = Toolset(await mcp.tools())
        said = [(await tools.call("local__variable", {"name": n})).output for n in ("TOKEN", "LLM_API_KEY")]
    assert said == ["t", "(none)"]


async def test_client_sends_its_headers_and_does_not_print_them() -> None:
    with MCPHTTP() as http:
        server = MCPServer("far", "http", url=http.url, headers={"authorization": "Bearer secret-token"})
        assert "secret-token" not in repr(server)
        async with MCPTools([server]) as mcp:
            await mcp.tools()
    assert http.seen and all(headers["authorization"] == "Bearer secret-token" for headers in http.seen)


def test_client_gives_tools_names_that_every_model_takes() -> None:
    taken: set[str] = set()
    names = [_safe_name("s", tool, taken) for tool in ("a.b", "a b", "a_b", "ü" * 5, "x" * 100, "x" * 101)]
    assert len(set(names)) == 6 and names[0] == "s__a_b"
    assert all(len(name) <= 64 and name.isascii() and name.replace("_", "").isalnum() for name in names)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "has space", "transport": "http", "url": "http://a"},
        {"name": "a" * 33, "transport": "http", "url": "http://a"},
        {"name": "a", "transport": "http", "url": "file:///etc/passwd"},
        {"name": "a", "transport": "http", "url": "http://me:pw@a"},
        {"name": "a", "transport": "stdio"},
    ],
)
def test_client_refuses_a_server_of_the_wrong_form(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        MCPServer(**values)


def test_client_refuses_two_servers_of_one_name() -> None:
    with pytest.raises(ValueError, match="called 'local'"):
        allowing(local(), local())


# -- processes --------------------------------------------------------------------------------------------------------


async def test_client_starts_no_server_before_the_first_call(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = (sys.executable, "-c", f"open({str(started)!r}, 'w')")
    server = MCPServer("local", "stdio", command=program[0], args=program[1:], timeout_s=20.0)
    async with MCPTools([server], commands=[program]) as mcp:
        assert not started.exists()
        with pytest.raises(MCPFailure):
            await mcp.tools()
        assert started.exists()


@pytest.mark.parametrize("args", [pytest.param((), marks=pytest.mark.thorough(reason="a process")), ("--stubborn",)])
async def test_client_leaves_no_process_behind(args: tuple[str, ...]) -> None:
    async with allowing(local(*args)) as mcp:
        tools = Toolset(await mcp.tools())
        server = int((await tools.call("local__pid", {})).output)
        child = int((await tools.call("local__child", {})).output)
        assert alive(server) and alive(child) and server != os.getpid()
    assert await gone(server, child)
    assert (await tools.call("local__pid", {})).error == "local: the connection was closed"


async def test_client_leaves_no_process_behind_when_the_work_fails() -> None:
    with pytest.raises(RuntimeError, match="the work failed"):
        async with allowing(local()) as mcp:
            server = int((await Toolset(await mcp.tools()).call("local__pid", {})).output)
            raise RuntimeError("the work failed")
    assert await gone(server)


@pytest.mark.thorough(reason="servers of tools as processes; a dead one is restarted in make test too")
async def test_client_leaves_no_process_behind_when_the_work_is_cancelled() -> None:
    pids: list[int] = []

    async def work() -> None:
        async with allowing(local()) as mcp:
            tools = Toolset(await mcp.tools())
            pids.append(int((await tools.call("local__pid", {})).output))
            await tools.call("local__slow", {"seconds": 60})

    working = asyncio.create_task(work())
    while not pids:
        await asyncio.sleep(0.02)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await gone(*pids)


@pytest.mark.thorough(reason="servers of tools as processes; a dead one is restarted in make test too")
async def test_client_starts_a_server_that_died_again_but_once() -> None:
    async with allowing(local()) as mcp:
        tools = Toolset(await mcp.tools())
        first = int((await tools.call("local__pid", {})).output)
        child = int((await tools.call("local__child", {})).output)
        died = await tools.call("local__die", {})
        assert not died.ok and "broke off during the call; the next call connects again" in died.error
        second = int((await tools.call("local__pid", {})).output)
        assert first != second and await gone(first, child)
        assert "it is not started again" in (await tools.call("local__die", {})).error
        assert (await tools.call("local__pid", {})).error == "local: the server died and is not started again"
    assert await gone(second)


async def test_client_restarts_a_dead_server_once_for_all_rollouts() -> None:
    async with allowing(local()) as mcp:
        tools = Toolset(await mcp.tools())
        await asyncio.gather(*(tools.call("local__slow", {"seconds": 20}) for _ in range(4)),
                             tools.call("local__die", {}))  # fmt: skip
        pids = await asyncio.gather(*(tools.call("local__pid", {}) for _ in range(4)))
        assert len({result.output for result in pids}) == 1 and all(result.ok for result in pids)


@pytest.mark.thorough(reason="servers of tools as processes; a dead one is restarted in make test too")
async def test_client_keeps_a_new_connection_when_a_late_call_gives_up_the_old_one() -> None:
    async with allowing(local()) as mcp:
        tools = Toolset(await mcp.tools())
        peer = mcp._peers["local"]
        old = peer._link
        await tools.call("local__die", {})
        second = (await tools.call("local__pid", {})).output
        assert old is not None and peer._link is not old
        peer._drop(old)
        assert (await tools.call("local__pid", {})).output == second


async def test_client_makes_a_new_session_when_an_http_server_forgot_the_old_one() -> None:
    with MCPHTTP(legacy=True) as http:
        mcp = MCPTools([MCPServer("far", "http", url=http.url, timeout_s=5)])
        tools = Toolset(await mcp.tools())
        assert (await tools.call("far__add", {"a": 1, "b": 1})).output == "2"
    with MCPHTTP(http.port, legacy=True):
        lost = await tools.call("far__add", {"a": 1, "b": 1})
        assert not lost.ok and "the next call connects again" in lost.error
        assert (await tools.call("far__add", {"a": 1, "b": 1})).output == "2"
        await mcp.__aexit__()


@pytest.mark.thorough(reason="servers of tools as processes; a dead one is restarted in make test too")
async def test_client_says_so_when_a_server_can_not_be_had() -> None:
    async with allowing(local("--broken")) as mcp:
        with pytest.raises(MCPFailure, match="local: it can't be connected: Connection closed"):
            await mcp.tools()
    async with MCPTools([local(command="no-such-program", args=())], commands=[("no-such-program",)]) as mcp:
        with pytest.raises(MCPFailure, match="there is no program 'no-such-program'"):
            await mcp.tools()
    async with allowing(local("--silent", timeout_s=0.5)) as mcp:
        with pytest.raises(MCPFailure, match=r"no answer within 0\.5 s"):
            await mcp.tools()


async def test_client_reports_an_http_server_that_is_away_and_connects_again_later() -> None:
    with MCPHTTP() as http:
        mcp = MCPTools([MCPServer("far", "http", url=http.url, timeout_s=5)])
        tools = Toolset(await mcp.tools())
        assert (await tools.call("far__add", {"a": 1, "b": 1})).output == "2"
    away = await tools.call("far__add", {"a": 1, "b": 1})
    assert not away.ok and away.error
    with MCPHTTP(http.port):
        results = [await tools.call("far__add", {"a": 1, "b": 1}) for _ in range(2)]
    assert results[-1].output == "2", results
    await mcp.__aexit__()
    async with MCPTools([MCPServer("far", "http", url=http.url, timeout_s=5)]) as again:
        with pytest.raises(MCPFailure, match="far: it can't be connected"):
            await again.tools()


# -- kept connections --------------------------------------------------------------------------------------------------


def pooled(pool: MCPPool, http: MCPHTTP, owner: str = "acme", token: str = "t-1", **changes: Any) -> MCPTools:
    values: dict[str, Any] = {"url": http.url, "timeout_s": 5, "headers": {"Authorization": f"Bearer {token}"}}
    return MCPTools([MCPServer("far", "http", **(values | changes))], pool=pool, owner=owner)


async def added(mcp: MCPTools) -> str:
    """The result of a call, as each call of the gateway makes one."""
    async with mcp:
        return (await Toolset(await mcp.tools()).call("far__add", {"a": 1, "b": 1})).output


def begun(http: MCPHTTP) -> int:
    """Times that a client introduced itself: what it asks without a session."""
    return sum("mcp-session-id" not in headers for headers in http.seen)


@pytest.fixture
async def pool() -> AsyncIterator[MCPPool]:
    made: MCPPool = ConnectionPool(idle_s=60)
    yield made
    await made.aclose()
    assert not len(made)


async def test_a_second_use_of_a_server_connects_no_second_time(pool: MCPPool) -> None:
    with MCPHTTP(legacy=True) as http:
        assert await added(pooled(pool, http)) == "2"
        first = begun(http)
        assert first > 0
        assert await asyncio.gather(*(added(pooled(pool, http)) for _ in range(4))) == ["2"] * 4
        assert begun(http) == first and len(pool) == 1
        some = pooled(pool, http, tools=("pid",))  # other grants are no other connection
        async with some:
            assert [tool.remote for tool in await some.tools()] == ["pid"]
        assert begun(http) == first


@pytest.mark.parametrize("changed", [{"token": "t-2"}, {"owner": "globex"}], ids=["credential", "organisation"])
async def test_another_credential_and_another_organisation_have_a_connection_of_their_own(
    pool: MCPPool, changed: dict[str, str]
) -> None:
    with MCPHTTP(legacy=True) as http:
        await added(pooled(pool, http))
        first = begun(http)
        assert await added(pooled(pool, http, **changed)) == "2"
        assert begun(http) == 2 * first and len(pool) == 2
        token = changed.get("token", "t-1")
        assert http.seen[-1]["authorization"] == f"Bearer {token}"
    assert token not in repr(pool._kept.values())


async def test_a_kept_connection_to_a_server_that_went_is_made_again_once(pool: MCPPool) -> None:
    with MCPHTTP(legacy=True) as http:
        await added(pooled(pool, http))
    with MCPHTTP(http.port, legacy=True) as again:
        assert await added(pooled(pool, again)) == "2"
        first = begun(again)
        assert await added(pooled(pool, again)) == "2"
        assert begun(again) == first and len(pool) == 1
    with pytest.raises(MCPFailure, match="far: it can't be connected"):
        await added(pooled(pool, again))
    with MCPHTTP(http.port, legacy=True) as back:
        assert await added(pooled(pool, back)) == "2"


@pytest.mark.thorough(reason="servers of tools as processes; a server that went is connected again in make test too")
async def test_a_kept_program_that_died_for_good_gives_way_to_another(pool: MCPPool) -> None:
    pids = []
    for _ in range(3):
        async with allowing(local(), pool=pool, owner="acme") as mcp:
            tools = Toolset(await mcp.tools())
            pids.append(int((await tools.call("local__pid", {})).output))
            await tools.call("local__die", {})
    assert len(set(pids)) == 3 and len(pool) == 1 and await gone(*pids)


class Line:
    """A connection that counts how often it was closed."""

    worn_out = False
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_a_pool_is_bounded_and_closes_what_is_unused() -> None:
    pool: ConnectionPool[Line] = ConnectionPool(most=2, idle_s=0.02)
    a, b, more = (pool.lend(key, Line) for key in "abc")
    assert len(pool) == 2 and pool.lend("a", Line) is a
    await pool.take_back("c", more)
    assert more.closed == 1  # it was its user's own
    await pool.take_back("b", b)
    c = pool.lend("c", Line)  # in the place of the unused one
    await asyncio.sleep(0)
    assert (b.closed, len(pool)) == (1, 2)
    await pool.take_back("a", a)
    await pool.take_back("c", c)
    assert pool.lend("c", Line) is c and c.closed == 0
    await asyncio.sleep(0.2)
    assert (a.closed, c.closed, len(pool)) == (0, 0, 2)  # both have a user
    await pool.take_back("a", a)
    await asyncio.sleep(0.2)
    assert (a.closed, len(pool)) == (1, 1)
    await pool.aclose()
    assert (c.closed, len(pool)) == (1, 0)
    late = pool.lend("d", Line)
    await pool.take_back("d", late)
    assert late.closed == 1
