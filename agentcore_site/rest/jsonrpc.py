"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification): the protocol, without any method of ours.

Codes: -32700 not JSON, -32600 not a request, -32601 no such method, -32602 wrong parameters, -32603 our mistake.
What a service refuses carries its own code (400, 403, 404, 409, 413, 429, 507) and its own words.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from rest_framework import serializers

from agentcore_site.lib.async_db import briefly, in_thread
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import DomainError, Forbidden, Invalid
from agentcore_site.lib.request_turns import turn_end
from agentcore_site.lib.storable import parse_json
from agentcore_site.lib.trace_context import request_id
from agentcore_site.rest.problems import UNEXPECTED
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import NAMES, refused, who_may

log = logging.getLogger(__name__)

MAX_BATCH: Final = 50
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603


class Params(BaseModel):
    """The parameters of a method: names are exact, and nothing is guessed from another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


@dataclass(frozen=True)
class Call:
    """The caller, and the time (monotonic seconds) until which this whole request may wait for workers."""

    actor: Actor
    deadline: float

    async def until(self, read: Callable[[], Any], seconds: float) -> Any:
        """The first truthy answer of ``read``, or its last one. Between two looks no connection to the database is
        held, so that a waiting request keeps no other one from working."""
        end = min(time.monotonic() + seconds, self.deadline)
        pause = 0.05
        while not (found := await briefly(read)()) and time.monotonic() < end:
            turn_end()
            await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(pause * 1.5, 1.0)
        return found


@dataclass(frozen=True)
class Method:
    """One row of the table. ``permission`` is what the caller needs in at least one organisation before anything is
    looked at (none: any caller may); the service checks again, for the organisation in question. ``run`` may be sync or
    async. ``result`` is the shape of what it returns: the serializer that describes it, or a JSON schema."""

    params: type[Params]
    permission: str | None
    run: Callable[[Call, Any], dict[str, Any] | Awaitable[dict[str, Any]]]
    summary: str
    result: type[serializers.Serializer[Any]] | Mapping[str, Any]


Table = Mapping[str, Method]


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


async def respond(body: bytes, table: Table, call: Call) -> Any:
    """The answer to a request or a batch; None where nothing is to be answered (notifications only).

    Raises:
        TROUBLE: the database is away; the view answers that.
    """
    try:
        document = parse_json(body)
    except Invalid as error:
        return failure(None, PARSE_ERROR, error.message)
    if not isinstance(document, list):
        return await _one(document, table, call)
    if not 1 <= len(document) <= MAX_BATCH:
        return failure(None, INVALID_REQUEST, f"A batch has 1 to {MAX_BATCH} requests; this one has {len(document)}.")
    # One after the other: a batch of pause and resume means it in this order.
    answers = [await _one(entry, table, call) for entry in document]
    return [answer for answer in answers if answer is not None] or None


def failure(id: Any, code: int, message: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return {"jsonrpc": "2.0", "error": error, "id": id}


async def _one(entry: Any, table: Table, call: Call) -> dict[str, Any] | None:
    id = entry.get("id") if isinstance(entry, dict) and _is_id(entry.get("id")) else None
    try:
        if problem := _malformed(entry):
            raise RpcError(INVALID_REQUEST, problem)
        result = await method_run(table, entry["method"], entry.get("params", {}), call)
    except RpcError as error:
        answer = failure(id, error.code, error.message, error.data)
        # A request that is not even one can't be a notification.
        return answer if error.code == INVALID_REQUEST or "id" in entry else None
    return {"jsonrpc": "2.0", "result": result, "id": id} if "id" in entry else None


async def method_run(table: Table, name: str, given: Any, call: Call) -> dict[str, Any]:
    """The result of a method.

    Raises:
        RpcError: there is none of that name, or it refuses.
        TROUBLE: the database is away.
    """
    method = _known(table, name)

    def prepared() -> Params:
        _admit(method, call.actor)
        return _params(method, given)

    run: Any = method.run
    try:
        if inspect.iscoroutinefunction(run):
            result: dict[str, Any] = await run(call, await in_thread(prepared)())
        else:
            result = await in_thread(lambda: run(call, prepared()))()
        return result
    except DomainError as error:
        data = {"title": error.title} | ({"fields": error.fields} if error.fields else {})
        raise RpcError(error.code, error.message, data) from error
    except (RpcError, *TROUBLE):
        raise
    except Exception as error:  # its text may hold data that is not the caller's; the log has it
        log.exception("a JSON-RPC method failed")
        raise RpcError(INTERNAL, UNEXPECTED, {"request_id": request_id.get()}) from error


def allowed(method: Method, actor: Actor) -> bool:
    """Whether the caller may call it in some organisation."""
    return method.permission is None or any(
        actor.may(method.permission, organization) for organization in actor.organization_ids
    )


def _admit(method: Method, actor: Actor) -> None:
    if method.permission is not None and not allowed(method, actor):
        if actor.organization_ids:
            raise Forbidden(refused(actor, method.permission, actor.organization_ids[0]))
        raise Forbidden(f"You may not {NAMES.get(method.permission, method.permission)}. {who_may(method.permission)}")


def _params(method: Method, given: Any) -> Params:
    names = list(method.params.model_fields)
    if isinstance(given, list):
        if len(given) > len(names):
            raise RpcError(INVALID_PARAMS, f"Too many parameters: {len(given)}; at most {len(names)}.")
        given = dict(zip(names, given, strict=False))
    try:
        return method.params.model_validate(given)
    except ValidationError as error:
        fields = {".".join(str(part) for part in one["loc"]): _words(one, names) for one in error.errors()}
        message = " ".join(f"{name}: {text}" for name, text in fields.items())
        raise RpcError(INVALID_PARAMS, message, {"fields": fields}) from error


def _words(error: Any, names: list[str]) -> str:
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), names, n=1)
        return f"Unknown parameter (did you mean {near[0]}?)." if near else "Unknown parameter."
    if error["type"] == "missing":
        return "Is missing."
    return f"{error['msg']}."


def _known(table: Table, name: str) -> Method:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name[:100], table, n=1)
    hint = f" Did you mean {near[0]}?" if near else f" Methods: {', '.join(table)}."
    raise RpcError(NO_METHOD, f"There is no method {name[:100]!r}.{hint}")


def _malformed(entry: Any) -> str:
    """Why this is no request, or nothing if it is one."""
    if not isinstance(entry, dict):
        return "A request is an object with jsonrpc, method, params and id."
    if entry.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0".'
    if not isinstance(entry.get("method"), str):
        return "method must be a string."
    if not isinstance(entry.get("params", {}), dict | list):
        return "params must be an object or an array."
    if "id" in entry and not _is_id(entry["id"]):
        return "id must be a string, a number or null."
    return ""


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))
