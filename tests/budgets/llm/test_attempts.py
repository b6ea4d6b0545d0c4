"""Retries: each attempt has its own key, hold and settlement, and the waits are the ones that were asked for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.llm import errors
from budgets.llm.breaker import CircuitBreaker
from budgets.llm.retry import RetryPolicy, parse_retry_after
from budgets.meter_port import Bill, BudgetRefused, CallKey, FreeMeter
from tests.support.llm_acts import act
from tests.support.llm_client import SAY, SERVER_PRICES, Sleeper, ask, client, key
from tests.support.llm_server import ModelServer


async def test_each_attempt_is_held_and_settled_under_a_key_of_its_own(server: ModelServer, meter: FreeMeter) -> None:
    server.will("error_503", "bad_gateway_page", "rate_limited")
    done = await ask(client(server, meter, max_retries=5), key=key(name="job/9/s"))
    assert done.attempts == 4
    assert list(meter.holds_micros) == list(meter.bills) == [f"job/9/s/{n}" for n in (1, 2, 3, 4)]
    sources = [(bill.source, bill.amount_micros > 0) for bill in meter.bills.values()]
    assert sources == [("none", False), ("estimate", True), ("none", False), ("table", True)]
    assert meter.spent_micros >= server.owed.micros and meter.reserved_micros == 0
    assert done.spent_micros == meter.spent_micros > done.cost_micros > 0


async def test_client_gives_up_after_its_last_retry_and_reports_the_number_of_attempts(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("error_503", "bad_gateway_page", "error_503", "bad_gateway_page", "error_503")
    with pytest.raises(errors.Overloaded) as caught:
        await ask(client(server, meter, max_retries=3))
    assert caught.value.attempts == len(meter.bills) == len(server.requests) == 4
    assert caught.value.spent_micros == meter.spent_micros == 2 * min(meter.holds_micros.values()) > 0


@pytest.mark.parametrize("does", ["empty_choices", "wrong_types", act("status", code=400)])
async def test_client_does_not_repeat_what_was_paid_for_or_would_fail_again(
    server: ModelServer, meter: FreeMeter, does
) -> None:
    server.will(does)
    with pytest.raises(errors.LLMError):
        await ask(client(server, meter, max_retries=5))
    assert len(server.requests) == len(meter.bills) == 1


async def test_client_waits_the_requested_time_and_a_little_longer(server: ModelServer) -> None:
    time = Sleeper()
    server.will(act("rate_limited", retry_after=7), "error_503")
    await ask(client(server, time=time, max_retries=5))
    first, second = time.naps
    assert 7.0 <= first <= 7.5 and 0.0 <= second <= 1.0


async def test_client_gives_up_at_once_where_the_wait_is_longer_than_the_time_left(server: ModelServer) -> None:
    time = Sleeper()
    server.will(act("rate_limited", retry_after=120))
    with pytest.raises(errors.RateLimited) as caught:
        await ask(client(server, time=time, max_retries=5, retry_s=60))
    assert caught.value.retry_after == 120 and time.naps == []


async def test_its_waits_count_towards_the_time_of_a_call(server: ModelServer) -> None:
    server.will(*[act("rate_limited", retry_after=25)] * 5)
    with pytest.raises(errors.RateLimited) as caught:
        await ask(client(server, max_retries=9, retry_s=60))
    assert caught.value.attempts == 3  # 25 + 25 fit into 60 seconds, a third 25 does not


async def test_its_attempts_count_towards_the_time_of_a_call(server: ModelServer) -> None:
    time = Sleeper()

    class Slowly(FreeMeter):
        async def settle(self, call: CallKey, bill: Bill) -> None:
            time.now += 40
            await super().settle(call, bill)

    server.will(*["error_503"] * 5)
    with pytest.raises(errors.Overloaded) as caught:
        await ask(client(server, Slowly(), time=time, max_retries=9, retry_s=60))
    assert caught.value.attempts == 2


async def test_the_queue_at_the_gate_takes_no_time_from_the_retries(server: ModelServer) -> None:
    server.will("answer", "error_503")
    async with client(server, per_minute={"training": 1}, retry_s=10, max_retries=3, time=(time := Sleeper())) as one:
        await one.complete(SAY, max_tokens=9, key=key())
        assert (await one.complete(SAY, max_tokens=9, key=key())).attempts == 2
    assert sum(time.naps) > 100


async def test_a_budget_that_refuses_sends_nothing_and_passes_through(server: ModelServer) -> None:
    class Empty(FreeMeter):
        async def reserve(self, call: CallKey, amount: int) -> None:
            raise BudgetRefused("job", 100, 90, 0, amount)

    meter = Empty()
    with pytest.raises(BudgetRefused):
        await ask(client(server, meter, max_retries=5))
    assert not server.requests and not meter.bills


async def test_a_budget_that_refuses_the_second_attempt_ends_the_call(server: ModelServer) -> None:
    class Once(FreeMeter):
        async def reserve(self, call: CallKey, amount: int) -> None:
            if self.holds_micros:
                raise BudgetRefused("job", 100, 90, 0, amount)
            await super().reserve(call, amount)

    meter = Once()
    server.will("error_503")
    with pytest.raises(BudgetRefused):
        await ask(client(server, meter, max_retries=5))
    assert len(server.requests) == 1 and meter.reserved_micros == 0


async def test_a_meter_that_is_down_lets_nothing_through(server: ModelServer) -> None:
    class Down(FreeMeter):
        async def reserve(self, call: CallKey, amount: int) -> None:
            raise ConnectionError("no database")

    with pytest.raises(ConnectionError, match="no database"):
        await ask(client(server, Down(), max_retries=5))
    assert not server.requests


class Slow(FreeMeter):
    """Takes until ``go`` for a hold, as a database under load does."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.inside = asyncio.Event(), asyncio.Event()

    async def reserve(self, call: CallKey, amount: int) -> None:
        self.inside.set()
        await self.go.wait()
        await super().reserve(call, amount)


async def test_a_call_that_is_cancelled_during_its_hold_is_not_sent(server: ModelServer) -> None:
    meter = Slow()
    async with client(server, meter) as one:
        task = asyncio.create_task(one.complete(SAY, max_tokens=9, key=key()))
        await meter.inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (meter.holds_micros or meter.bills or server.requests)
        meter.go.set()
        assert (await one.complete(SAY, max_tokens=9, key=key())).text  # its place at the gate is free again


async def test_a_deadline_around_a_call_ends_the_call_and_the_hold_is_paid(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("hang")
    async with client(server, meter) as one:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await one.complete(SAY, max_tokens=9, key=key())
    assert [bill.amount_micros for bill in meter.bills.values()] == list(meter.holds_micros.values())


async def test_a_storm_of_faults_never_costs_more_than_was_counted(meter: FreeMeter) -> None:
    faults = {"error_503": 0.1, "rate_limited": 0.1, "reset": 0.1, "cut_stream": 0.1, "bad_json": 0.1, "no_usage": 0.0}
    prices = {"small": (3_000_000, 15_000_000)}
    with ModelServer(prices=prices, faults=faults, seed=5) as server:
        async with client(server, meter, max_retries=3) as one:
            calls = (one.complete(SAY, max_tokens=40, key=key()) for _ in range(200))
            ended = await asyncio.gather(*calls, return_exceptions=True)
    assert not [one for one in ended if isinstance(one, BaseException) and not isinstance(one, errors.LLMError)]
    assert set(meter.holds_micros) == set(meter.bills) and len(meter.bills) == server.owed.requests
    assert min(server.acted[name] for name in faults if faults[name]) > 0
    assert meter.spent_micros >= server.owed.micros > 0 and meter.reserved_micros == 0


async def test_an_open_circuit_sends_and_holds_nothing_until_a_probe_succeeds(
    server: ModelServer, meter: FreeMeter
) -> None:
    time = Sleeper()
    breaker = CircuitBreaker(threshold=3, cooldown_s=15, clock=time)
    server.will(*["error_503"] * 3)
    async with client(server, meter, time=time, breaker=breaker, retry_s=1) as one:  # no time to wait for the circuit
        for _ in range(3):
            with pytest.raises(errors.Overloaded):
                await one.complete(SAY, max_tokens=9, key=key())
        with pytest.raises(errors.CircuitOpen) as caught:
            await one.complete(SAY, max_tokens=9, key=key())
        assert len(server.requests) == len(meter.holds_micros) == 3 and caught.value.attempts == 0
        time.now += 15
        assert (await one.complete(SAY, max_tokens=9, key=key())).attempts == 1
        assert breaker.state == "closed"


async def test_a_call_with_enough_time_waits_for_the_circuit(server: ModelServer) -> None:
    time = Sleeper()
    breaker = CircuitBreaker(threshold=2, cooldown_s=15, clock=time)
    server.will("error_503", "error_503")
    done = await ask(client(server, time=time, breaker=breaker, max_retries=4))
    assert done.attempts == 3 and sum(time.naps) >= 15


async def test_a_rate_limit_does_not_open_the_circuit(server: ModelServer) -> None:
    time = Sleeper()
    breaker = CircuitBreaker(threshold=2, cooldown_s=15, clock=time)
    server.will(*["rate_limited"] * 4)
    await ask(client(server, time=time, breaker=breaker, max_retries=4))
    assert breaker.state == "closed" and len(time.naps) == 4 and sum(time.naps) < 15  # no call waited for the circuit


async def test_a_probe_that_the_budget_refuses_leaves_the_next_one_to_try(server: ModelServer) -> None:
    class Once(FreeMeter):
        async def reserve(self, call: CallKey, amount: int) -> None:
            if not self.calls:
                self.calls[call.key] = call
                raise BudgetRefused("job", 100, 90, 0, amount)
            await super().reserve(call, amount)

    time = Sleeper()
    breaker = CircuitBreaker(threshold=1, cooldown_s=15, clock=time)
    breaker.failed()
    time.now += 15
    async with client(server, Once(), time=time, breaker=breaker, retry_s=0) as one:
        with pytest.raises(BudgetRefused):
            await one.complete(SAY, max_tokens=9, key=key())
        assert (await one.complete(SAY, max_tokens=9, key=key())).text


class Draws:
    """The upper end of every range: the longest wait there can be."""

    def __call__(self, low: float, high: float) -> float:
        return high


def test_back_off_doubles_up_to_its_cap() -> None:
    policy = RetryPolicy(max_retries=9, total_s=1e9, base_s=0.5, cap_s=4)
    waits = [policy.wait(errors.Overloaded("x"), sent=n, elapsed=0, uniform=Draws()) for n in range(1, 7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


@given(sent=st.integers(0, 10**6), after=st.none() | st.floats(0, 1e6), elapsed=st.floats(0, 1e6))
def test_a_wait_never_goes_past_the_total_time_nor_below_what_was_asked(sent, after, elapsed) -> None:
    policy = RetryPolicy(max_retries=10**7, total_s=300)
    wait = policy.wait(errors.RateLimited("x", retry_after=after), sent=sent, elapsed=elapsed, uniform=Draws())
    assert wait is None or (elapsed + wait <= 300 and wait >= (after or 0))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("2.5", 2.5),
        (" 30 ", 30.0),
        (format_datetime(datetime(2026, 1, 1, 0, 0, 42, tzinfo=UTC), usegmt=True), 42.0),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 0.0),
        (format_datetime(datetime(2026, 1, 1, 1, 0, 5, tzinfo=UTC).replace(tzinfo=None)), 3605.0),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_client_reads_retry_after_in_seconds_and_as_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=datetime(2026, 1, 1, tzinfo=UTC)) == seconds


async def test_client_honours_a_date_that_a_server_gives(server: ModelServer) -> None:
    time = Sleeper()
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.will(act("rate_limited", retry_after=when), act("status", code=503, headers={"retry-after-ms": "1500"}))
    await ask(client(server, time=time, max_retries=3))
    assert 60 < time.naps[0] < 92 and 1.5 <= time.naps[1] <= 2.6


BROKEN = ["html", "cut_stream", "cut_body", "truncated_json", "bad_json", act("status", code=200, body=b"")]


@pytest.mark.parametrize("does", BROKEN)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_answer_is_asked_for_again_after_a_pause(
    server: ModelServer, meter: FreeMeter, does, stream: bool
) -> None:
    time = Sleeper()
    server.will(does, does)
    done = await ask(client(server, meter, time=time, max_retries=3), stream=stream)
    assert done.text.startswith("You said") and done.attempts == len(time.naps) + 1 == 3
    assert meter.spent_micros == done.spent_micros < sum(meter.holds_micros.values()) / 3


async def test_a_broken_answer_of_which_a_part_was_handed_on_is_not_asked_for_again(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("cut_stream")
    pieces: list[str] = []
    with pytest.raises(errors.BrokenAnswer):
        await ask(client(server, meter, max_retries=3), on_delta=pieces.append)
    assert pieces and len(server.requests) == 1


@pytest.mark.parametrize("does", BROKEN)
async def test_broken_answers_open_the_circuit(server: ModelServer, does) -> None:
    server.will(*[does] * 20)
    time = Sleeper()
    async with client(server, breaker=CircuitBreaker(threshold=8, clock=time), time=time, retry_s=1) as one:
        for _ in range(12):
            with pytest.raises((errors.BrokenAnswer, errors.CircuitOpen)):
                await one.complete(SAY, max_tokens=5, key=key())
    assert len(server.requests) == 8


async def test_the_announced_part_of_a_cut_answer_is_billed_with_its_prompt(meter: FreeMeter) -> None:
    with ModelServer(brain=lambda _: "seventeen apples and pears " * 40, prices=SERVER_PRICES) as server:
        server.will("cut_body")
        async with client(server, meter) as one:
            with pytest.raises(errors.BrokenAnswer):
                await one.complete(SAY, max_tokens=4000, key=key())
    [bill], [hold] = meter.bills.values(), meter.holds_micros.values()
    assert 0.8 * server.owed.micros < bill.amount_micros < 2 * server.owed.micros < hold / 3
