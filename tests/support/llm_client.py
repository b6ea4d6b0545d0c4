"""Shared parts of tests of the model client: an endpoint of a server, prices, a clock without real waiting."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from typing import Any

from budgets.llm.breaker import CircuitBreaker
from budgets.llm.client import MeteredChatClient
from budgets.llm.secret import Secret
from budgets.llm.types import Completion, Endpoint, Message
from budgets.meter_port import CallKey, FreeMeter, Meter
from budgets.pricing import Price, UnknownPrice
from tests.support.llm_server import ModelServer

SMALL = Price("small", input_micros=3_000_000, output_micros=15_000_000)  # $3 and $15 a million
SERVER_PRICES = {"small": (SMALL.input_micros, SMALL.output_micros)}
SAY = (Message("user", "What is 6 times 7?"),)
NUMBERS = itertools.count()


class Prices:
    """A price book of a few models."""

    def __init__(self, *prices: Price) -> None:
        self._prices = {price.model: price for price in prices or (SMALL,)}

    def price(self, model: str) -> Price:
        if model not in self._prices:
            raise UnknownPrice(model)
        return self._prices[model]


class Sleeper:
    """A clock that moves only during sleeps; ``naps`` are the requested seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def key(purpose: str = "training", *, model: str = "small", name: str = "") -> CallKey:
    return CallKey(name or f"job/{next(NUMBERS)}", purpose, model)


def endpoint(server: ModelServer, **changes: Any) -> Endpoint:
    given: dict[str, Any] = {"base_url": server.base_url, "model": "small", "api_key": Secret("sk-very-secret-key")}
    return Endpoint(**{**given, "timeout_s": 20.0, "max_retries": 0, **changes})


def client(
    server: ModelServer,
    meter: Meter | None = None,
    *,
    time: Sleeper | None = None,
    breaker: CircuitBreaker | None = None,
    prices: Prices | None = None,
    **changes: Any,
) -> MeteredChatClient:
    """A client of ``server``; ``changes`` are fields of its endpoint."""
    time = time or Sleeper()
    return MeteredChatClient(
        endpoint(server, **changes),
        meter or FreeMeter(),
        prices or Prices(),
        clock=time,
        sleep=time.sleep,
        rng=random.Random(7),
        breaker=breaker or CircuitBreaker(threshold=1_000, clock=time),
    )


async def ask(one: MeteredChatClient, **options: Any) -> Completion:
    """One call with defaults, closing the client after it."""
    async with one:
        return await one.complete(SAY, **{"max_tokens": 64, "key": key(), **options})


def said(notes: Mapping[str, Any] | tuple[str, ...], part: str) -> bool:
    return any(part in note for note in notes)
