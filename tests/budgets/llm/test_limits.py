"""The limits of an endpoint and its callers: the circuit breaker, the gates, the bound of tokens."""

from __future__ import annotations

import asyncio
import json
import random
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.llm import tokens
from budgets.llm.billing import bill_of_answer
from budgets.llm.breaker import CircuitBreaker
from budgets.llm.concurrency_limits import ConcurrencyLimit, OwnPace
from budgets.llm.errors import CircuitOpen
from budgets.llm.request import ModelRequest, encode
from budgets.llm.types import Answer, Endpoint, Message, ToolCall, ToolSpec
from budgets.meter_port import FreeMeter
from budgets.pricing import Price
from tests.support.llm_client import SAY, Sleeper, client, key
from tests.support.llm_server import ModelServer

# The breaker


def opened(time: Sleeper, *, threshold: int = 3) -> CircuitBreaker:
    breaker = CircuitBreaker(threshold=threshold, cooldown_s=15, clock=time)
    for _ in range(threshold):
        breaker.enter()
        breaker.failed()
    return breaker


def test_breaker_opens_after_so_many_failures_in_a_row_and_no_sooner() -> None:
    breaker = CircuitBreaker(threshold=3, clock=Sleeper())
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        breaker.enter()
        outcome()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"


def test_an_open_circuit_reports_its_remaining_time() -> None:
    time = Sleeper()
    breaker = opened(time)
    time.now += 5
    with pytest.raises(CircuitOpen) as caught:
        breaker.enter()
    assert caught.value.retry_after == 10.0


def test_after_the_cool_down_exactly_one_probe_passes() -> None:
    time = Sleeper()
    breaker = opened(time)
    time.now += 15
    assert breaker.state == "half-open"
    breaker.enter()
    with pytest.raises(CircuitOpen):
        breaker.enter()
    breaker.succeeded()
    breaker.enter()
    assert breaker.state == "closed"


def test_a_probe_that_fails_opens_the_circuit_again_for_the_whole_time() -> None:
    time = Sleeper()
    breaker = opened(time)
    time.now += 15
    breaker.enter()
    breaker.failed()
    time.now += 14
    assert breaker.state == "open"


def test_a_probe_that_was_cancelled_lets_the_next_one_try() -> None:
    time = Sleeper()
    breaker = opened(time)
    time.now += 15
    breaker.enter()
    breaker.abandoned()
    assert breaker.state == "half-open"
    breaker.enter()
    breaker.succeeded()
    assert breaker.state == "closed"


def test_failures_of_calls_from_before_do_not_prolong_the_open_circuit() -> None:
    time = Sleeper()
    breaker = opened(time)
    time.now += 10
    breaker.failed()
    time.now += 5
    assert breaker.state == "half-open"


# The gates


async def test_no_more_calls_are_under_way_than_their_purpose_has_places(meter: FreeMeter) -> None:
    with ModelServer(latency_s=0.05) as server:
        async with client(server, meter, concurrency={"training": 3}) as one:
            await asyncio.gather(*(one.complete(SAY, max_tokens=5, key=key("training")) for _ in range(12)))
    assert server.peak == 3 and server.owed.answered == 12


async def test_production_passes_while_training_is_full(server: ModelServer, meter: FreeMeter) -> None:
    server.will("hang", "hang")
    async with client(server, meter, concurrency={"training": 2, "production": 1}) as one:
        stuck = [asyncio.create_task(one.complete(SAY, max_tokens=5, key=key("training"))) for _ in range(5)]
        while server.inside < 2:
            await asyncio.sleep(0.01)
        assert (await one.complete(SAY, max_tokens=5, key=key("production"))).text
        assert len(server.requests) == 3 and len(meter.holds_micros) == 3  # who waits at the gate holds no money
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
    assert meter.reserved_micros == 0


async def test_an_attempt_that_waits_to_be_repeated_holds_no_place(server: ModelServer) -> None:
    server.will("error_503")
    released = asyncio.Event()

    class Waiting(Sleeper):
        async def sleep(self, seconds: float) -> None:
            await released.wait()

    async with client(server, time=Waiting(), concurrency={"training": 1}, max_retries=1) as one:
        first = asyncio.create_task(one.complete(SAY, max_tokens=5, key=key()))
        while not server.requests:
            await asyncio.sleep(0.01)
        assert (await one.complete(SAY, max_tokens=5, key=key())).attempts == 1
        released.set()
        assert (await first).attempts == 2


def turns(time: Sleeper, per_minute: int) -> Callable[[], Awaitable[float]]:
    pace = OwnPace(time)
    return lambda: pace.turn("training", per_minute)


@pytest.mark.parametrize(("per_minute", "at_once"), [(60, 1), (600, 10), (6, 1)])
async def test_a_gate_lets_a_second_of_requests_through_and_spaces_the_rest(per_minute: int, at_once: int) -> None:
    time = Sleeper()
    gate = ConcurrencyLimit(slots=1_000, turn=turns(time, per_minute), sleep=time.sleep)
    for _ in range(at_once + 20):
        async with gate:
            pass
    assert len(time.naps) == 20
    assert time.now - 1_000 == pytest.approx(20 * 60 / per_minute)


async def test_an_idle_gate_saves_up_no_more_than_a_second_of_requests() -> None:
    time = Sleeper()
    gate = ConcurrencyLimit(slots=10, turn=turns(time, 600), sleep=time.sleep)
    time.now += 3600
    for _ in range(15):
        async with gate:
            pass
    assert len(time.naps) == 5


async def test_a_purpose_has_its_own_pace(server: ModelServer) -> None:
    time = Sleeper()
    async with client(server, time=time, per_minute={"training": 60}) as one:
        for purpose in ("training", "training", "production", "production"):
            await one.complete(SAY, max_tokens=5, key=key(purpose))
    assert time.naps == [pytest.approx(1.0)]


# Tokens

TEXTS = st.text(st.characters(exclude_categories=()), max_size=60)
SPECIAL = 7  # special tokens that a template puts around a message: begin, role, newline, end and some more


def byte_tokens(text: str) -> int:
    """The worst byte-level tokenizer there can be, which never merges: a token per byte of what it normalised."""
    clean = text.encode("utf-8", "replace").decode()
    return max(len(unicodedata.normalize(form, clean).encode()) for form in ("NFC", "NFKC"))


MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    TEXTS,
    st.lists(st.builds(ToolCall, TEXTS, TEXTS, st.just({}), TEXTS), max_size=2).map(tuple),
    TEXTS,
    TEXTS,
)
TOOLS = st.builds(ToolSpec, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3))


def encoded(messages: list[Message], tools: list[ToolSpec], **changes: object):
    where = Endpoint("http://somewhere/v1", "m", **changes)  # type: ignore[arg-type]
    options = {"response_format": None, "temperature": None, "seed": None, "stop": None, "stream": False}
    return encode(where, messages, tools=tools, max_tokens=5, **options)  # type: ignore[arg-type]


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.lists(TOOLS, max_size=3))
def test_no_byte_level_tokenizer_makes_more_tokens_of_a_prompt_than_are_held(messages, tools) -> None:
    texts = [(one.role, one.content, one.name, one.tool_call_id) for one in messages]
    texts += [(call.id, call.name, call.raw) for one in messages for call in one.tool_calls]
    texts += [(tool.name, tool.description, *tool.parameters, *tool.parameters.values()) for tool in tools]
    most = sum(byte_tokens(text) for parts in texts for text in parts) + SPECIAL * len(messages)
    request = encoded(messages, tools)
    assert most <= request.prompt_tokens
    assert json.loads(request.body)["max_tokens"] == 5


def test_a_text_that_grows_by_normalisation_is_held_at_its_final_length() -> None:
    for grows in ("\u0958" * 100, "\ufdfa" * 100, "\U0001d160" * 100):
        assert encoded([Message("user", grows)], []).prompt_tokens > byte_tokens(grows) > len(grows.encode())


@given(TEXTS)
def test_any_random_merging_of_bytes_has_no_more_tokens_than_bytes(text: str) -> None:
    rng, data, count = random.Random(len(text)), text.encode("utf-8", "surrogatepass"), 0
    while data:
        data, count = data[rng.randint(1, 6) :], count + 1
    assert count <= tokens.upper_bytes(text)


async def test_a_server_that_counts_bytes_never_bills_above_the_hold(meter: FreeMeter) -> None:
    rng = random.Random(3)
    letters = "aé漢🧀\n\"\\'\u0958\t "
    with ModelServer(
        prices={"small": (3_000_000, 15_000_000)},
        count=lambda text: len(unicodedata.normalize("NFC", text).encode()),
        overhead=SPECIAL,
    ) as server:
        async with client(server, meter) as one:
            for _ in range(50):
                turns = [
                    Message(rng.choice(["system", "user"]), "".join(rng.choices(letters, k=rng.randint(0, 200))))
                    for _ in range(rng.randint(1, 6))
                ]
                tools = [ToolSpec("t", "".join(rng.choices(letters, k=50)))] if rng.random() < 0.5 else None
                done = await one.complete(turns, max_tokens=rng.randint(1, 300), key=key(), tools=tools)
                attempt = list(meter.holds_micros)[-1]
                assert meter.bills[attempt].amount_micros <= meter.holds_micros[attempt] and done.bill.source == "table"
    assert meter.spent_micros == server.owed.micros


def test_the_bound_has_room_for_what_a_template_puts_around_messages_and_tools() -> None:
    def bound(messages: int, tools: int) -> int:
        return tokens.prompt_bound("[]", messages=messages, tools=tools)

    assert bound(2, 0) - bound(1, 0) >= SPECIAL
    assert bound(1, 1) - bound(1, 0) >= 530 and bound(1, 2) > bound(1, 1)


def test_an_image_counts_as_an_image_however_long_its_address_is() -> None:
    def asked(url: str, *more: dict[str, Any]) -> ModelRequest:
        parts = [{"type": "image_url", "image_url": {"url": url}}, *more]
        return encoded([Message("user", "What is it?", opaque={"content": parts})], [])

    plain = encoded([Message("user", "")], []).prompt_tokens
    small, inline = asked("https://a.org/1.png"), asked(f"data:image/png;base64,{'A' * 2**20}")
    assert small.prompt_tokens == inline.prompt_tokens  # of the same image
    assert plain + 48_169 <= small.prompt_tokens <= plain + 51_000
    assert asked("https://a.org/1.png", {"type": "text", "text": "x" * 900}).prompt_tokens >= small.prompt_tokens + 900
    assert json.loads(inline.body)["messages"][0]["content"][0]["image_url"]["url"].endswith("AAAA")
    price = Price("small", 1_000_000, 1_000_000)
    for request in (small, inline):  # a service that reports no usage is paid for an image, not for its address
        bill, usage = bill_of_answer(
            price, Answer(text="A cat."), prompt=request.prompt, latency_ms=1, images=request.images
        )
        assert 1_000 < usage.input_tokens < 2_000 and bill.source == "estimate"


def test_settings_of_the_endpoint_count_as_prompt_too() -> None:
    plain = encoded([Message("user", "hi")], []).prompt_tokens
    more = encoded([Message("user", "hi")], [], extra={"guide": "x" * 500}, prompt_overhead=100).prompt_tokens
    assert more >= plain + 600


def test_the_middle_estimate_is_a_quarter_of_the_bytes_rounded_up() -> None:
    assert [tokens.middle(text) for text in ("", "a", "abcd", "abcde", "漢字")] == [0, 1, 1, 2, 2]
    assert tokens.estimate("abcd" * 5, "abcd").estimated
