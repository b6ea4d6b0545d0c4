"""The metered model client: chat completions of any OpenAI-compatible endpoint, paid for before they are sent.

Each attempt goes the same way, and its order is what the budget's safety rests on
(docs/algorithms.md#prices-and-holds):
  1. a place at the gate of its purpose; 2. the circuit breaker; 3. the hold of the worst case, committed;
  4. the request; 5. the settlement, also when 4 failed or the task is cancelled.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

from budgets.llm.billing import bill_of_answer, bill_of_break, bill_of_error
from budgets.llm.breaker import CircuitBreaker
from budgets.llm.concurrency_limits import ConcurrencyLimits, OwnPace
from budgets.llm.errors import CircuitOpen, LLMError, RateLimited, Transient
from budgets.llm.request import ModelRequest, encode
from budgets.llm.retry import RetryPolicy
from budgets.llm.transport import Connection, Exchange, Listener, OnDelta, TextListener
from budgets.llm.types import Answer, Completion, Endpoint, Message, RequestOptions
from budgets.meter_port import Bill, CallKey, Meter, PriceBook
from budgets.pricing import Price, worst_case_micros


class MeteredChatClient:
    """Calls one endpoint. Belongs to one event loop; use it as an async context manager, or call ``aclose``.

    Several clients of one endpoint may share a ``breaker``, and those of one event loop ``gates``. ``clock`` is
    monotonic, in seconds; ``rng`` draws the jitter.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        meter: Meter,
        prices: PriceBook,
        *,  # what clients share, and time and chance for tests
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        gates: ConcurrencyLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._meter = meter
        self._prices = prices
        self._retry = retry or RetryPolicy(max_retries=endpoint.max_retries, total_s=endpoint.retry_s)
        self.breaker = breaker or CircuitBreaker(clock=clock)
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 - jitter is no secret
        self._gates = gates or ConcurrencyLimits(endpoint, pace=OwnPace(clock), sleep=sleep)
        self._line = Connection(endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._line.aclose()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        key: CallKey,
        stream: bool = False,
        on_delta: OnDelta | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion:
        """One call, in as many attempts as it takes; attempt n is held and settled under ``key.key + "/<n>"``, n ≥ 1.

        The price is that of ``key.model``; what is sent is ``endpoint.model``, since gateways have names of their own
        for a model. ``on_delta`` gets each piece of text as it arrives and makes the call a streamed one. A call is
        never made twice under one key: a call that is made again takes a new one.

        Raises LLMError, BudgetRefused, UnknownPrice, ValueError (``encode``), and what the meter raises: no
        request is sent then, or its answer was not settled and its hold is charged when it expires.
        """
        streamed = stream or on_delta is not None
        request = encode(self.endpoint, messages, max_tokens=max_tokens, stream=streamed, **options)
        return await self.send(request, key=key, listener=None if on_delta is None else TextListener(on_delta))

    async def send(self, request: ModelRequest, *, key: CallKey, listener: Listener | None = None) -> Completion:
        """``complete`` of a request that is encoded already; ``listener`` receives the answer as it comes.

        Raises:
            LLMError, BudgetRefused, UnknownPrice, and what the meter raises: as ``complete``.
        """
        price = self._prices.price(key.model)
        sent = spent_micros = 0
        elapsed = 0.0  # in attempts and between them; waiting in the queue of the concurrency limit is no failure
        while True:
            name = f"{key.key}/{sent + 1}"
            attempt = CallKey(name, key.purpose, key.model, key.iteration, key.rollout)
            outcome, seconds = await self._attempt(attempt, request, price, listener)
            sent += not isinstance(outcome, CircuitOpen)
            spent_micros += outcome.spent_micros
            if isinstance(outcome, Completion):
                return outcome if sent == 1 else replace(outcome, attempts=sent, spent_micros=spent_micros)
            elapsed += seconds
            wait = self._retry.wait(outcome, sent=sent, elapsed=elapsed, uniform=self._rng.uniform)
            if wait is None:
                outcome.attempts, outcome.spent_micros = sent, spent_micros
                raise outcome
            elapsed += wait
            await self._sleep(wait)

    async def _attempt(
        self, key: CallKey, request: ModelRequest, price: Price, listener: Listener | None
    ) -> tuple[Completion | LLMError, float]:
        """The outcome of one attempt, and its seconds without the wait for a free slot."""
        hold_micros = worst_case_micros(price, prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens)
        async with self._gates.of(key.purpose):
            began = self._clock()
            try:
                self.breaker.enter()
            except CircuitOpen as error:
                return error, 0.0
            reported = False
            try:
                await self._meter.reserve(key, hold_micros)
                outcome = await self._paid(key, request, price, hold_micros, listener)
                self._report_to_breaker(outcome)
                reported = True
            finally:
                if not reported:
                    self.breaker.abandoned()
            return outcome, self._clock() - began

    async def _paid(
        self, key: CallKey, request: ModelRequest, price: Price, hold_micros: int, listener: Listener | None
    ) -> Completion | LLMError:
        """Sends under a hold and settles it in any case."""
        exchange = Exchange(request)
        began = self._clock()
        try:
            outcome = await self._line.exchange(exchange, purpose=key.purpose, trace=key.key, listener=listener)
        except (Exception, asyncio.CancelledError) as error:
            why = "cancelled" if isinstance(error, asyncio.CancelledError) else f"caller: {type(error).__name__}"
            bill = bill_of_break(sent=exchange.sent, hold_micros=hold_micros, latency_ms=self._since(began), why=why)
            await self._meter.settle(key, bill)
            raise
        latency = self._since(began)
        if isinstance(outcome, LLMError):
            bill = bill_of_error(
                price,
                outcome,
                hold_micros=hold_micros,
                latency_ms=latency,
                prompt=request.prompt,
                images=request.images,
            )
            await self._meter.settle(key, bill)
            outcome.spent_micros = bill.amount_micros
            if exchange.failure is not None:
                raise exchange.failure
            return outcome
        bill, usage = bill_of_answer(price, outcome, prompt=request.prompt, latency_ms=latency, images=request.images)
        await self._meter.settle(key, bill)
        if exchange.failure is not None:
            raise exchange.failure
        return _completion(outcome, bill, usage, exchange, self.endpoint)

    def _report_to_breaker(self, outcome: Completion | LLMError) -> None:
        # A rate limit is about one key's pace: the endpoint is well, and production may hold another key.
        if isinstance(outcome, Transient) and not isinstance(outcome, RateLimited):
            self.breaker.failed()
        else:
            self.breaker.succeeded()

    def _since(self, began: float) -> int:
        return round((self._clock() - began) * 1000)


def _completion(answer: Answer, bill: Bill, usage: Any, exchange: Exchange, endpoint: Endpoint) -> Completion:
    return Completion(
        text=answer.text,
        tool_calls=answer.tool_calls,
        finish_reason=answer.finish_reason,
        usage=usage,
        cost_micros=bill.amount_micros,
        spent_micros=bill.amount_micros,
        model=answer.model or endpoint.model,
        latency_ms=bill.latency_ms,
        request_id=exchange.request_id or answer.id,
        bill=bill,
        reasoning=answer.reasoning,
        notes=answer.notes,
        tokens=answer.tokens,
        opaque=answer.opaque,
    )
