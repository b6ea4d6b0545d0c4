"""Lists of tools of MCP servers without those that can't be used: one odd tool costs that tool, not the server.
Results of tools with their odd parts as text: one odd part costs no result.

The package refuses a whole list for one tool without a schema, and a whole result for one part that it does not know.
So both are read before it sees them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final

import anyio
from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]
from mcp.types import CallToolResult, Tool
from pydantic import ValidationError

MOST_REASON: Final = 200  # characters
OF_RESULTS: Final = ("content", "structuredContent", "toolResult", "isError")


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
                elif isinstance(result, dict) and not result.keys().isdisjoint(OF_RESULTS):
                    _mend(result)
                await passed.send(message)


def _usable(tools: list[Any], odd: dict[str, str]) -> list[Any]:
    found = []
    for number, tool in enumerate(tools, 1):
        if reason := _fault(tool):
            name = tool.get("name") if isinstance(tool, Mapping) else None
            odd[name if isinstance(name, str) and name else f"number {number}"] = reason[:MOST_REASON]
        else:  # results are read as they are: the package would drop one that breaks the server's own schema of it
            found.append({name: value for name, value in tool.items() if name != "outputSchema"})
    return found


def _mend(result: dict[str, Any]) -> None:
    """Makes the parts of a tool's result readable to the package."""
    given = result.get("content")
    parts = given if isinstance(given, list) else [] if given is None else [given]
    found = [part for one in parts if (part := _part(one)) is not None]
    if not isinstance(structured := result.get("structuredContent", {}), Mapping):
        found += [_text(structured)] if structured is not None and not found else []
        del result["structuredContent"]
    if "toolResult" in result:  # of the first versions of the protocol
        found.append(_text(result.pop("toolResult")))
    if not isinstance(result.get("isError", False), bool):
        del result["isError"]
    result["content"] = found


def _part(part: Any) -> Any:
    """A part of a result as the package takes it; None for a text without words."""
    if isinstance(part, Mapping) and part.get("type") == "text" and part.get("text") is None:
        return None
    try:
        CallToolResult.model_validate({"content": [part]}, by_name=False)
    except ValidationError:
        return _text(part)
    return part


def _text(value: Any) -> dict[str, str]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


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
