"""Random streams of all dialects, whole, cut at every byte or damaged, through the client and the gateway's listeners:
no exception but the client's own, and no hold that stays."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections import Counter
from typing import Any

import pytest

from budgets.llm.breaker import CircuitBreaker
from budgets.llm.client import MeteredChatClient
from budgets.llm.errors import LLMError
from budgets.llm.stream import StreamDelta
from budgets.llm.types import Answer, Completion, Endpoint, Message
from budgets.meter_port import CallKey, FreeMeter
from evaluation.serving.gateway.chat_answers import ChatInterface
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.responses import ResponsesInterface
from evaluation.serving.traces.content import answered, kept
from tests.support.llm_client import Prices
from tests.support.raw_server import RawServer, response
from tests.support.rounds import rounds
from tests.support.stream_dialects import DIALECTS, THINKING, Truth, truth, written

AT_ONCE = 64
CASE = re.compile(rb"case (\d+);")
KINDS = ("text/event-stream", "text/event-stream; charset=utf-8", "application/json", "text/plain")


class Failing:
    """A listener that fails at its ``nth`` event."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def event(self, delta: StreamDelta) -> bool:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the page is gone")
        return True

    def whole(self, body: bytes, answer: Answer) -> None:
        raise RuntimeError("the page is gone")


def gateway_call(interface: Any, read: dict[str, Any]) -> tuple[GatewayCall, Any]:
    asked = interface(json.dumps(read | {"model": "small"}).encode())
    call = GatewayCall(None, asked.request, None, "")  # type: ignore[arg-type]
    return call, asked.streamed(call) if asked.request.stream else asked.whole(call)


CHAT = {"messages": [{"role": "user", "content": "?"}], "stream_options": {"include_usage": True}}
ASKED: dict[str, Any] = {
    "chat": (ChatInterface, {**CHAT, "stream": True}),
    "responses": (ResponsesInterface, {"input": "?", "stream": True}),
    "chat, whole": (ChatInterface, {"messages": [{"role": "user", "content": "?"}]}),
    "responses, whole": (ResponsesInterface, {"input": "?"}),
}


class Play:
    """Plays cases against a server; ``ended`` counts how they ended."""

    def __init__(self, seed: int) -> None:
        self.rng, self.meter, self.ended = random.Random(seed), FreeMeter(), Counter[str]()
        self.bodies: dict[int, bytes] = {}
        self.number = 0

    async def __aenter__(self) -> Play:
        self.server = await RawServer(lambda read: self.bodies[int(CASE.search(read)[1])]).__aenter__()  # type: ignore[index]
        endpoint = Endpoint(self.server.base_url, "small", timeout_s=20.0, max_retries=0, default_concurrency=AT_ONCE)
        breaker = CircuitBreaker(threshold=10**9)
        self.client = MeteredChatClient(endpoint, self.meter, Prices(), breaker=breaker)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        await self.server.__aexit__()

    async def case(self, sent: bytes, said: Truth | None, listening: str) -> None:
        """``said``: what has to be read, where the stream is whole; else it may fail."""
        self.number += 1
        number, name = self.number, f"case {self.number};"
        self.bodies[number] = sent
        call = listener = None
        if listening in ASKED:
            call, listener = gateway_call(*ASKED[listening])
        elif listening == "failing":
            listener = Failing(self.number % 4)
        options: dict[str, Any] = {"max_tokens": 500, "stream": not listening.endswith("whole")}
        request = self.request(name, **options)
        try:
            found = await self.client.send(request, key=CallKey(name, "test", "small"), listener=listener)
        except LLMError as error:
            assert said is None and error.message, (listening, error.message, sent)
            self.ended["refused"] += 1
        except RuntimeError:
            assert listening == "failing"
            self.ended["failed"] += 1
        else:
            self.ended["answered"] += 1
            if said is not None:
                check(found, said)
            if call is not None:
                call.completion = found
                read_back(listening, listener, said)
            row = answered(found)
            kept({"messages": [{"role": "user", "content": "?"}]}, "?", row["response"])
        finally:
            del self.bodies[number]

    def request(self, content: str, **options: Any) -> Any:
        from budgets.llm.request import encode

        return encode(self.client.endpoint, [Message("user", content)], **options)

    def check_holds(self) -> None:
        meter = self.meter
        assert meter.holds_micros.keys() == meter.bills.keys() and len(meter.bills) == self.number
        for name, bill in meter.bills.items():
            assert 0 <= bill.amount_micros <= meter.holds_micros[name] or bill.source in ("table", "provider")


def check(found: Completion, said: Truth) -> None:
    assert (found.text, found.reasoning) == (said.text, said.thoughts)
    assert [(call.name, dict(call.arguments), call.arguments_error) for call in found.tool_calls] == [
        (name, arguments, "") for _, name, arguments in said.calls
    ]
    assert (found.usage.input_tokens, found.usage.output_tokens) == said.usage and not found.usage.estimated


def read_back(listening: str, listener: Any, said: Truth | None) -> None:
    """The answer that a caller of the gateway gets: JSON in OpenAI's form, which an ordinary client puts together."""
    if listening.endswith("whole"):
        body = json.loads(listener.sent(None))
        message = body["choices"][0]["message"] if "choices" in body else None
        if message is not None and said is not None:
            assert message["content"] == said.text
            assert [json.loads(one["function"]["arguments"]) for one in message.get("tool_calls") or ()] == [
                arguments for *_, arguments in said.calls
            ]
        return
    sent = b"".join(listener.pieces._ready) + listener.rest(None)
    events = [
        json.loads("\n".join(line[6:] for line in event.splitlines(keepends=False) if line.startswith("data: ")))
        for event in sent.decode().replace("data: [DONE]\n\n", "").split("\n\n")
        if event
    ]
    if said is None:
        return
    if listening == "responses":
        output = events[-1]["response"]["output"]
        called = [(one["name"], json.loads(one["arguments"])) for one in output if one["type"] == "function_call"]
        text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    else:
        text, calls = "", {}  # as the clients of OpenAI's API join them: by index
        for event in events:
            for choice in event.get("choices") or ():
                delta = choice["delta"]
                text += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    one = calls.setdefault(part["index"], ["", ""])
                    one[0] += part["function"].get("name") or ""
                    one[1] += part["function"].get("arguments") or ""
        called = [(name, json.loads(arguments)) for name, arguments in calls.values()]
    assert text == said.text and called == [(name, arguments) for _, name, arguments in said.calls]


def damaged(rng: random.Random, body: bytes) -> bytes:
    found = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found))
        found[at : at + rng.choice((0, 1, 1, 3))] = rng.choice(
            (b"", b"{", b'"', b"\n\n", b"null", b"NaN", b"\\ud83d", b"\xff", b"0", b"[]", b"\r", b"error", b"data: ")
        )
    return bytes(found)


LISTENERS = (*ASKED, "failing", "none")


async def fuzz(play: Play, most: int) -> None:
    """Streams until ``most`` cases were played: each one whole, then damaged, then cut at each of its bytes."""
    rng = play.rng
    while play.number < most:
        for name, dialect in DIALECTS.items():
            said = truth(rng)
            if name not in THINKING:
                said.thoughts = ""
            body, kind = written(rng, dialect(rng, said)), rng.choice(KINDS)
            cases = [(response(body, kind=kind), said, listening) for listening in LISTENERS]
            cases += [
                (response(damaged(rng, body), kind=kind), None, rng.choice(LISTENERS))
                for _ in range(20 if most > 10_000 else 3)
            ]
            cuts = range(len(body)) if most > 10_000 else sorted(rng.sample(range(len(body)), 3))
            cases += [
                (response(body[:cut], kind=kind, length=len(body)), None, LISTENERS[at % len(LISTENERS)])
                for at, cut in enumerate(cuts)
            ]
            for at in range(0, len(cases), AT_ONCE):
                await asyncio.gather(*(play.case(*one) for one in cases[at : at + AT_ONCE]))
            if play.number >= most:
                return


@pytest.mark.rounds
async def test_streams_of_all_dialects_are_read_and_every_hold_is_settled() -> None:
    most = int(os.environ.get("STREAMS", rounds(150, 20_000)))
    async with Play(random.getrandbits(32)) as play:
        await fuzz(play, most)
        play.check_holds()
        print(f"{play.number:,} streams: {dict(play.ended)}, {play.meter.reserved_micros} on hold")
        assert min(play.ended["answered"], play.ended["refused"], play.ended["failed"]) > most / 50, play.ended
