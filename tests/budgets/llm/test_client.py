"""Good calls: what is sent, what comes back and what they cost, against a real server."""

from __future__ import annotations

import json

import pytest

from budgets.llm.errors import BrokenAnswer
from budgets.llm.request import encode
from budgets.llm.types import Endpoint, Message, ToolCall, ToolSpec
from budgets.meter_port import FreeMeter
from budgets.pricing import Price, UnknownPrice
from tests.support.llm_acts import act
from tests.support.llm_client import SAY, Prices, ask, client, endpoint, key
from tests.support.llm_server import ModelServer

ADD = ToolSpec("add", "Adds two numbers", {"type": "object", "properties": {"a": {"type": "number"}}})


async def test_client_answers_and_the_ledger_agrees_with_the_server(server: ModelServer, meter: FreeMeter) -> None:
    done = await ask(client(server, meter))
    assert done.text == "You said: What is 6 times 7?"
    assert (done.finish_reason, done.model, done.request_id, done.attempts) == ("stop", "small", "req-1", 1)
    owed = server.account(key="sk-very-secret-key")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (owed.prompt_tokens, owed.completion_tokens)
    assert done.cost_micros == done.bill.amount_micros == meter.spent_micros == owed.micros > 0
    assert (done.bill.source, done.usage.estimated, meter.reserved_micros) == ("table", False, 0)


async def test_client_holds_before_sending(server: ModelServer) -> None:
    class Watching(FreeMeter):
        async def reserve(self, call, amount):
            assert not server.requests
            await super().reserve(call, amount)

        async def settle(self, call, bill):
            assert len(server.requests) == 1 and self.reserved_micros > 0
            await super().settle(call, bill)

    meter = Watching()
    done = await ask(client(server, meter))
    assert meter.bills and done.cost_micros <= next(iter(meter.holds_micros.values()))


async def test_client_always_sends_the_cap_that_the_hold_counts_on(server: ModelServer) -> None:
    await ask(client(server), max_tokens=77)
    await ask(client(server, max_tokens_field="max_completion_tokens"), max_tokens=78)
    assert server.requests[0].body["max_tokens"] == 77
    assert server.requests[1].body["max_completion_tokens"] == 78 and "max_tokens" not in server.requests[1].body


async def test_client_sends_tools_formats_and_settings_and_reads_tool_calls(server: ModelServer) -> None:
    server.will("tool_calls")
    done = await ask(
        client(server, extra={"top_p": 0.5}),
        tools=[ADD],
        response_format={"type": "json_object"},
        temperature=0.25,
        seed=3,
        stop=["END"],
    )
    assert done.tool_calls == (ToolCall("call_1", "add", {"a": 1}, '{"a": 1}'),)
    assert (done.text, done.finish_reason) == ("", "tool_calls")
    body = server.requests[0].body
    assert body["tools"][0]["function"]["name"] == "add" and body["response_format"] == {"type": "json_object"}
    assert (body["temperature"], body["seed"], body["stop"], body["top_p"]) == (0.25, 3, ["END"], 0.5)


async def test_client_sends_a_conversation_with_tools_in_the_format_of_providers(server: ModelServer) -> None:
    turns = [
        Message("system", "Be brief."),
        Message("assistant", tool_calls=(ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", raw="{oops"))),
        Message("tool", "2", tool_call_id="c1"),
    ]
    async with client(server) as one:
        await one.complete(turns, max_tokens=5, key=key())
    sent = server.requests[0].body["messages"]
    assert sent[1]["content"] is None
    assert [call["function"]["arguments"] for call in sent[1]["tool_calls"]] == ['{"a": 1}', "{oops"]
    assert sent[2] == {"role": "tool", "content": "2", "tool_call_id": "c1"}


async def test_client_streams_each_chunk_at_once_and_counts_the_same(server: ModelServer, meter: FreeMeter) -> None:
    pieces: list[str] = []
    done = await ask(client(server, meter), on_delta=pieces.append)
    assert len(pieces) > 2 and "".join(pieces) == done.text == "You said: What is 6 times 7?"
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert done.bill.source == "table" and meter.spent_micros == server.owed.micros


async def test_client_streams_tool_calls_together(server: ModelServer) -> None:
    server.will(act("tool_calls", arguments='{"a": 12345}'))
    done = await ask(client(server), stream=True, tools=[ADD])
    assert done.tool_calls == (ToolCall("call_1", "add", {"a": 12345}, '{"a": 12345}'),)
    assert done.finish_reason == "tool_calls"


async def test_client_reads_a_whole_answer_from_a_server_that_does_not_stream(server: ModelServer) -> None:
    server.will(act("json_body", value={"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}))
    pieces: list[str] = []
    done = await ask(client(server), on_delta=pieces.append)
    assert (done.text, pieces) == ("whole", ["whole"])


async def test_the_cost_that_the_provider_reports_wins_over_the_table(meter: FreeMeter) -> None:
    with ModelServer(prices={"small": (9_000_000, 9_000_000)}, report_cost=True) as server:
        done = await ask(client(server, meter, kind="openrouter"))
    assert done.bill.source == "provider" and meter.spent_micros == server.owed.micros == done.cost_micros
    assert server.requests[0].body["usage"] == {"include": True}


async def test_client_estimates_and_marks_a_missing_usage(server: ModelServer, meter: FreeMeter) -> None:
    server.will("no_usage")
    done = await ask(client(server, meter))
    assert done.usage.estimated and done.bill.source == "estimate"
    assert 0 < done.cost_micros < meter.holds_micros[next(iter(meter.holds_micros))]


async def test_client_does_not_believe_a_negative_usage(server: ModelServer) -> None:
    server.will("negative_usage")
    done = await ask(client(server))
    assert done.usage.estimated and done.usage.input_tokens > 0 and done.usage.output_tokens > 0
    assert any("usage.prompt_tokens" in note for note in done.notes)


async def test_client_passes_a_bill_above_the_hold_on_unchanged(server: ModelServer, meter: FreeMeter) -> None:
    usage = {"prompt_tokens": 10**6, "completion_tokens": 10**6}
    server.will(act("answer", usage=usage))
    done = await ask(client(server, meter))
    assert done.cost_micros == 18_000_000 > next(iter(meter.holds_micros.values()))
    assert meter.spent_micros == 18_000_000


async def test_client_refuses_a_model_without_a_price_before_holding_or_sending(
    server: ModelServer, meter: FreeMeter
) -> None:
    with pytest.raises(UnknownPrice, match="mystery"):
        await ask(client(server, meter), key=key(model="mystery"))
    assert not meter.holds_micros and not server.requests


async def test_the_hold_is_the_price_of_the_keys_model(server: ModelServer, meter: FreeMeter) -> None:
    prices = Prices(Price("named-otherwise", 0, 1_000_000))
    await ask(client(server, meter, prices=prices), key=key(model="named-otherwise"), max_tokens=50)
    assert list(meter.holds_micros.values()) == [50]
    assert server.requests[0].body["model"] == "small"


async def test_client_reads_an_unrequested_compressed_answer(server: ModelServer) -> None:
    server.will("compressed", act("compressed", encoding="br"))
    assert (await ask(client(server))).text.startswith("You said")
    with pytest.raises(BrokenAnswer, match="compressed"):
        await ask(client(server))
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("turns", [(), None])
async def test_client_refuses_a_call_without_messages(server: ModelServer, meter: FreeMeter, turns) -> None:
    async with client(server, meter) as one:
        with pytest.raises(ValueError, match="at least one message"):
            await one.complete(turns, max_tokens=5, key=key())
    assert not meter.holds_micros


async def test_client_refuses_a_call_without_a_cap(server: ModelServer, meter: FreeMeter) -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        await ask(client(server, meter), max_tokens=0)
    assert not meter.holds_micros


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://somewhere/v1"},
        {"base_url": "not an address"},
        {"base_url": "https://me:pass@somewhere/v1"},
        {"kind": "telepathy"},
        {"extra": {"n": 5}},
        {"extra": {"max_tokens": 10**6}},
        {"timeout_s": 0},
        {"max_retries": -1},
        {"concurrency": {"training": 0}},
        {"headers": {"x-team": "one\r\nx-other: two"}},
        {"headers": {"x-team": "one "}},
        {"headers": {"x-tëam": "one"}},
    ],
)
def test_an_endpoint_that_can_not_be_right_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError):
        Endpoint(**{"base_url": "https://somewhere/v1", "model": "small", **wrong})


@pytest.mark.parametrize("name", ["n", "best_of", "service_tier", "web_search_options", "plugins", "models"])
def test_extra_may_not_ask_for_what_a_hold_does_not_cover(name: str) -> None:
    with pytest.raises(ValueError, match=rf"extra must not set {name}: .*Leave it out"):
        Endpoint("https://somewhere/v1", "small", extra={name: 1})


def test_a_setting_of_the_call_wins_over_extra_and_is_in_the_body_once() -> None:
    one = Endpoint("https://somewhere/v1", "small", extra={"temperature": 2.0, "seed": 1}, kind="openrouter")
    made = encode(
        one, SAY, tools=(), response_format=None, temperature=0.5, max_tokens=9, seed=None, stop=None, stream=False
    )
    pairs = json.loads(made.body, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)) and dict(pairs)["temperature"] == 0.5 and dict(pairs)["seed"] == 1


def test_an_endpoint_keeps_the_query_of_its_address_at_the_end() -> None:
    assert Endpoint("https://a/v1/?api-version=2", "m").url == "https://a/v1/chat/completions?api-version=2"


@pytest.mark.parametrize("odd", ["\ud83d", "\0"])
async def test_text_that_no_model_reads_is_sent_as_a_replacement(server: ModelServer, odd: str) -> None:
    async with client(server) as one:
        done = await one.complete([Message("user", f"half {odd} an emoji")], max_tokens=50, key=key())
    assert done.text == "You said: half \ufffd an emoji"
    assert server.requests[0].body["messages"][0]["content"] == "half \ufffd an emoji"


async def test_one_client_serves_many_calls_at_once(server: ModelServer, meter: FreeMeter) -> None:
    import asyncio

    async with client(server, meter, default_concurrency=40) as one:
        done = await asyncio.gather(*(one.complete(SAY, max_tokens=30, key=key()) for _ in range(100)))
    assert len({id(one) for one in done}) == 100 and server.owed.answered == 100
    assert meter.spent_micros == server.owed.micros and meter.reserved_micros == 0
    assert endpoint(server).default_concurrency == 64
