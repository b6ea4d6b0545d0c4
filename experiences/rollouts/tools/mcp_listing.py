"""Lists of tools of MCP servers without those that can't be used: one odd tool costs that tool, not the server.

The package refuses a whole list for one tool without a schema, so lists are read before it sees them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final

import anyio
from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]
from mcp.types import Tool
from pydantic import ValidationError

MOST_REASON: Final = 200  # characters


@asynccontextmanager
async def usable_tools(
    transport: AbstractAsyncContextManager[Any], odd: dict[str, str]
) -> AsyncIterator[tuple[Any, Any]]:
    """A transport's streams, whose lists hold only tools that can be used. The others are named in ``odd``, with the
    reason."""
    async with transport as (arrived, outgoing), anyio.create_task_group() as pipe:
        passed, passed_read = anyio.create_memory_object_stream[Any](0)
        pipe.start_soon(_pass, arrived, passed, odd)
        try:
            yield passed_read, outgoing
        finally:
            pipe.cancel_scope.cancel()
            passed_read.close()


async def _pass(arrived: Any, passed: Any, odd: dict[str, str]) -> None:
    async with passed:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for message in arrived:
                result = getattr(getattr(message, "message", None), "result", None)
                if isinstance(result, dict) and isinstance(result.get("tools"), list):
                    result["tools"] = _usable(result["tools"], odd)
                await passed.send(message)


def _usable(tools: list[Any], odd: dict[str, str]) -> list[Any]:
    found = []
    for number, tool in enumerate(tools, 1):
        if reason := _fault(tool):
            name = tool.get("name") if isinstance(tool, Mapping) else None
            odd[name if isinstance(name, str) and name else f"number {number}"] = reason[:MOST_REASON]
        else:
            found.append(tool)
    return found


def _fault(tool: Any) -> str:
    """The reason why a tool can't be used; "" if it can."""
    if not isinstance(tool, Mapping):
        return "it is no object"
    if not isinstance(name := tool.get("name"), str) or not name:
        return "it has no name"
    schema = tool.get("inputSchema")
    if not schema:
        return "it has no inputSchema"
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return 'its inputSchema is not of "type": "object"'
    try:
        Draft202012Validator.check_schema(schema)
        Tool.model_validate(tool, by_name=False)
    except SchemaError as error:
        return f"its inputSchema is none: {error.message}"
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return ""
