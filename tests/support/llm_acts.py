"""Acts of the model server, good and bad. Each act writes its own answer to a real socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.llm_call import Call

Acting = Callable[["Call", dict[str, Any]], Awaitable[None]]
ACTS: dict[str, Acting] = {}
MEGABYTE = 2**20


@dataclass(frozen=True)
class Act:
    """An act by name with its options, for the script of a server."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def act(name: str, /, **options: Any) -> Act:
    assert name in ACTS, f"{name} is none of {', '.join(sorted(ACTS))}"
    return Act(name, options)


def named(function: Acting) -> Acting:
    ACTS[function.__name__] = function
    return function


@named
async def answer(call: Call, options: dict[str, Any]) -> None:
    """The brain's answer; ``message`` and ``usage`` replace parts of it, ``headers`` are added."""
    message = call.think() if "message" not in options else options["message"]
    await call.say(message, finish=options.get("finish"), **{k: options[k] for k in ("usage",) if k in options})


@named
async def tool_calls(call: Call, options: dict[str, Any]) -> None:
    arguments = options.get("arguments", '{"a": 1}')
    function = {"name": options.get("name", "add"), "arguments": arguments}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    await call.say(message, finish="tool_calls")


@named
async def wrong_tool_name(call: Call, options: dict[str, Any]) -> None:
    await tool_calls(call, {"name": "delete_everything"})


@named
async def arguments_not_json(call: Call, options: dict[str, Any]) -> None:
    await tool_calls(call, {"arguments": '{"a": 1,,}'})


@named
async def status(call: Call, options: dict[str, Any]) -> None:
    """Any refusal: ``code``, ``error`` (the error object) or ``body`` (bytes), ``headers``. Costs nothing."""
    code = options.get("code", 500)
    error = options.get("error", {"message": f"scripted {code}", "type": "scripted", "code": None})
    body = options.get("body", json.dumps({"error": error}).encode())
    await call.send(code, body, headers=options.get("headers", {}), kind=options.get("kind", "application/json"))


@named
async def rate_limited(call: Call, options: dict[str, Any]) -> None:
    headers = {"retry-after": str(options["retry_after"])} if "retry_after" in options else {}
    await status(call, {"code": 429, "headers": headers})


@named
async def error_500(call: Call, options: dict[str, Any]) -> None:
    await status(call, {"code": 500})


@named
async def error_503(call: Call, options: dict[str, Any]) -> None:
    """A model API that turns the request away."""
    error = {"message": "The server is overloaded or not ready yet.", "type": "server_error", "code": None}
    await status(call, {"code": 503, "error": error})


@named
async def upstream_503(call: Call, options: dict[str, Any]) -> None:
    """Envoy's: the model worked, and the connection to it broke."""
    call.bill()
    text = b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"
    await call.send(503, text, kind="text/plain")


@named
async def bad_gateway_page(call: Call, options: dict[str, Any]) -> None:
    call.bill()  # the gateway lost an answer that the model gave
    await call.send(502, b"<html><h1>502 Bad Gateway</h1></html>", kind="text/html")


@named
async def error_in_200(call: Call, options: dict[str, Any]) -> None:
    call.bill()
    error = {"message": "upstream failed", "code": options.get("code", 502)}
    if call.streamed:
        await call.events([{"choices": [{"index": 0, "delta": {"content": "so f"}}]}, {"error": error}])
    else:
        await call.send(200, json.dumps({"error": error}).encode())


@named
async def hang(call: Call, options: dict[str, Any]) -> None:
    """Works, bills and never answers a client, as long as it waits."""
    call.bill()
    ends = time.monotonic() + options.get("seconds", 3600)
    while not call.gone and time.monotonic() < ends:
        await asyncio.sleep(0.02)


@named
async def reset(call: Call, options: dict[str, Any]) -> None:
    """Closes hard after the request was read; ``billed`` says whether the model had worked."""
    if options.get("billed", True):
        call.bill()
    call.abort(hard=True)


@named
async def in_two(call: Call, options: dict[str, Any]) -> None:
    """Streams its first words, and the others once the event ``go`` is set."""
    message = call.think()
    usage = call.bill(message)
    text = message["content"]
    await call.open_stream()
    await call.event({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text[:8]}}]})
    while not options["go"].is_set():
        await asyncio.sleep(0.005)
    await call.event({"choices": [{"index": 0, "delta": {"content": text[8:]}, "finish_reason": "stop"}]})
    await call.event({"choices": [], "usage": usage})
    await call.end_of_chunks()


@named
async def cut_stream(call: Call, options: dict[str, Any]) -> None:
    """Half of the answer, then the connection is gone."""
    message = call.think()
    call.bill(message)
    await call.say_half(message)
    call.abort()


@named
async def cut_body(call: Call, options: dict[str, Any]) -> None:
    """A proxy that breaks: a 200 that announces its length, half of the body, then the connection is gone."""
    body = json.dumps(call.whole(call.think(), "stop", call.bill())).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    call.writer.write(head + body[: len(body) // 2])
    call.abort()


@named
async def empty(call: Call, options: dict[str, Any]) -> None:
    """A 200 without a body."""
    call.bill()
    await call.send(200, b"")


@named
async def polite_cut(call: Call, options: dict[str, Any]) -> None:
    """Half of a stream, then a proper end of the body: only the reason to finish is missing."""
    message = call.think()
    call.bill(message)
    await call.say_half(message)
    await call.end_of_chunks()


@named
async def usage_then_cut(call: Call, options: dict[str, Any]) -> None:
    """A stream that says its usage first and is cut then."""
    usage = call.bill()
    await call.events([{"choices": [{"index": 0, "delta": {"content": "so f"}}], "usage": usage}], end=False)
    call.abort()


@named
async def bad_json(call: Call, options: dict[str, Any]) -> None:
    call.bill()
    if call.streamed:
        await call.raw_events([b'data: {"choices": [}\n\n'])
    else:
        await call.send(200, b'{"choices": [{"message": {"content": hello}}]}')


@named
async def truncated_json(call: Call, options: dict[str, Any]) -> None:
    whole = json.dumps(call.whole(call.think(), "stop", call.bill())).encode()
    await call.send(200, whole[: len(whole) // 2])


@named
async def html(call: Call, options: dict[str, Any]) -> None:
    call.bill()
    await call.send(200, b"<!doctype html><title>Sign in</title>", kind="text/html")


@named
async def json_body(call: Call, options: dict[str, Any]) -> None:
    """``value`` as the body of a 200; an object gets the usage that is billed unless it has one."""
    usage = call.bill()
    value = options["value"]
    if isinstance(value, dict) and options.get("with_usage", True):
        value = {"usage": usage, **value}
    await call.send(200, json.dumps(value).encode(), kind=options.get("kind", "application/json"))


@named
async def empty_choices(call: Call, options: dict[str, Any]) -> None:
    if call.streamed:
        await call.events([{"choices": [], "usage": call.bill()}])
    else:
        await json_body(call, {"value": {"choices": []}})


@named
async def null_content(call: Call, options: dict[str, Any]) -> None:
    await call.say({"role": "assistant", "content": None}, finish="stop")


@named
async def wrong_types(call: Call, options: dict[str, Any]) -> None:
    await json_body(call, {"value": {"choices": [{"message": {"content": 42, "tool_calls": "none"}}], "model": 7}})


@named
async def wrong_content_type(call: Call, options: dict[str, Any]) -> None:
    value = call.whole(call.think(), "stop", call.bill())
    await call.send(200, json.dumps(value).encode(), kind="text/plain")


@named
async def big(call: Call, options: dict[str, Any]) -> None:
    """An answer of ``size`` bytes, sent in pieces; ``announced`` by its length or not; ``compressed`` to nothing."""
    call.bill()
    size = options.get("size", MEGABYTE)
    head, tail = b'{"choices": [{"message": {"content": "', b'"}, "finish_reason": "stop"}]}'
    pieces = [head, *[b"a" * 65536] * (max(0, size - len(head) - len(tail)) // 65536), tail]
    if options.get("compressed"):
        await call.send(200, gzip.compress(b"".join(pieces)), headers={"content-encoding": "gzip"})
    elif options.get("announced"):
        await call.send(200, b"".join(pieces))
    else:
        await call.chunks(pieces)


@named
async def compressed(call: Call, options: dict[str, Any]) -> None:
    body = json.dumps(call.whole(call.think(), "stop", call.bill())).encode()
    await call.send(200, gzip.compress(body), headers={"content-encoding": options.get("encoding", "gzip")})


@named
async def endless_stream(call: Call, options: dict[str, Any]) -> None:
    """Streams text until the client hangs up, with a ``pause`` in seconds after each piece."""
    call.bill()
    await call.open_stream()
    while True:
        await call.event({"choices": [{"index": 0, "delta": {"content": "a" * 8192}}]})
        await asyncio.sleep(options.get("pause", 0))


@named
async def words(call: Call, options: dict[str, Any]) -> None:
    """Streams six words, with a ``pause`` in seconds before each."""
    call.bill()
    await call.open_stream()
    for word in ("One ", "two ", "three ", "four ", "five ", "six."):
        await asyncio.sleep(options.get("pause", 0.25))
        await call.event({"choices": [{"index": 0, "delta": {"content": word}}]})
    await call.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    await call._chunk(b"data: [DONE]\n\n")
    await call.end_of_chunks()


@named
async def no_usage(call: Call, options: dict[str, Any]) -> None:
    await call.say(call.think(), usage=None)


@named
async def negative_usage(call: Call, options: dict[str, Any]) -> None:
    await call.say(call.think(), usage={"prompt_tokens": -5, "completion_tokens": "many", "total_tokens": -5})


@named
async def slow_drip(call: Call, options: dict[str, Any]) -> None:
    """A byte now and then: no single read ever times out."""
    call.bill()
    await call.chunks([b" "] * 10_000, pause=options.get("pause", 0.02))


@named
async def redirect(call: Call, options: dict[str, Any]) -> None:
    await call.send(307, b"", headers={"location": options.get("to", "http://127.0.0.1:9/elsewhere")})


@named
async def answer_twice(call: Call, options: dict[str, Any]) -> None:
    """Sends one answer more than was asked for: in the same packet, or ``later`` (seconds)."""
    bodies = [
        json.dumps(call.whole(message, "stop", call.bill(message))).encode()
        for message in (call.think(), {"role": "assistant", "content": "the answer to another question"})
    ]
    packets = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
    call.writer.write(packets[0] if "later" in options else b"".join(packets))
    if "later" in options:
        await asyncio.sleep(options["later"])
        call.writer.write(packets[1])


@named
async def answer_and_close(call: Call, options: dict[str, Any]) -> None:
    """Answers like HTTP/1.0: the end of the body is the end of the connection."""
    call.plain(json.dumps(call.whole(call.think(), "stop", call.bill())).encode())


@named
async def answer_and_leave(call: Call, options: dict[str, Any]) -> None:
    """A plain answer, after which the server hangs up without having said so."""
    await answer(call, options)
    call.writer.close()


@named
async def not_http(call: Call, options: dict[str, Any]) -> None:
    call.bill()
    call.plain(b"", head=b"220 mail.example ESMTP\r\n\r\n")


@named
async def informational(call: Call, options: dict[str, Any]) -> None:
    """Says that it is at work before it answers."""
    call.writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 3)
    await answer(call, options)


@named
async def echo_key(call: Call, options: dict[str, Any]) -> None:
    """Refuses a key and repeats every header that came, as helpful servers do."""
    shown = "; ".join(f"{name}: {value}" for name, value in call.headers.items())
    await status(call, {"code": 401, "error": {"message": f"Incorrect API key. You sent {shown}"}})
