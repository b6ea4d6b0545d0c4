"""Metered clients and payers of production calls, per event loop."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from budgets.endpoint_limits import SharedPace, breaker_of
from budgets.ledger.writer import LedgerWriter
from budgets.llm.client import MeteredChatClient
from budgets.llm.concurrency_limits import ConcurrencyLimits
from budgets.llm.retry import RetryPolicy
from budgets.meter_port import CallKey, PriceBook
from budgets.metering.block_meter import BlockMeter
from budgets.metering.database_meter import DatabaseMeter
from budgets.pricing import Price
from evaluation.serving.gateway.served_models import Upstream
from evaluation.serving.traces.journal import Journal, Segment

PRODUCTION: Final = "production"
SHADOW: Final = "shadow"
TEST: Final = "test"
COMMITTED_SECONDS: Final = 5.0
# An endpoint with a fallback after it gets one retry.
BEFORE_ANOTHER: Final = RetryPolicy(max_retries=1, total_s=10.0)


class PayerName(NamedTuple):
    """A chain of budgets. ``trial``: the playground's is one of them."""

    organization: uuid.UUID
    agent: uuid.UUID | None = None
    trial: bool = False


class CallPaid(NamedTuple):
    """The ledger's hold that paid for a call ("": a free call), and the cost of all its attempts."""

    hold: str = ""
    cost_micros: int = 0


NOTHING: Final = CallPaid()


class CurrentPrices:
    """The newest price book that was read."""

    def __init__(self, book: PriceBook) -> None:
        self.book = book

    def price(self, model: str) -> Price:
        return self.book.price(model)


class BlockJournal:
    """``BlockRecord`` in the process's journal, and the cost of each call with its hold."""

    def __init__(self, journal: Journal, meter: DatabaseMeter) -> None:
        self._journal, self._meter = journal, meter
        self._paid: dict[str, CallPaid] = {}

    def taken(self, call: uuid.UUID) -> CallPaid:
        """The payment of a call; removes it. Call it once, when the call is over."""
        return self._paid.pop(str(call), NOTHING)

    def opened(self, hold: CallKey, *, away: bool) -> Segment:
        meter = self._meter
        line = {
            "t": "block",
            "hold": meter.stored_key(hold),
            "away": away,
            "organization": str(meter.organization_id),
            "agent": str(meter.agent_id) if meter.agent_id else None,
            "purpose": hold.purpose,
            "model": hold.model,
        }
        return self._journal.begin(line)

    def drawn(self, hold: CallKey, call: str, amount_micros: int) -> None:
        stored, name = self._meter.stored_key(hold), call.partition("/")[0]
        self._paid[name] = self._paid.get(name, NOTHING)._replace(hold=stored)
        self._journal.note({"t": "draw", "hold": stored, "call": call, "amount": amount_micros})

    def billed(self, hold: CallKey, call: str, amount_micros: int) -> None:
        name = call.partition("/")[0]
        paid = self._paid[name]
        self._paid[name] = paid._replace(cost_micros=paid.cost_micros + amount_micros)
        self._journal.note({"t": "bill", "hold": self._meter.stored_key(hold), "call": call, "amount": amount_micros})

    def closed(self, hold: CallKey, opened: Any) -> None:
        # The ledger's writer commits it within moments.
        asyncio.get_running_loop().call_later(COMMITTED_SECONDS, self._journal.done, opened)


@dataclass
class Payer:
    """One chain of budgets, and its clients by endpoint."""

    meter: BlockMeter
    blocks: BlockJournal
    prices: CurrentPrices
    clients: dict[tuple[str, bool], MeteredChatClient] = field(default_factory=dict)


class Payers:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._writer = LedgerWriter()
        self._payers: dict[PayerName, Payer] = {}
        self._limits: dict[tuple[uuid.UUID, str], ConcurrencyLimits] = {}
        self._allowed_micros: dict[PayerName, int] = defaultdict(int)

    def payer(self, name: PayerName, prices: PriceBook, *, while_away_micros: int = 0) -> Payer:
        """The payer of a chain; updates its prices and its spending limit ``while_away_micros``."""
        found = self._payers.get(name)
        if found is None:
            ledger = DatabaseMeter(
                organization_id=name.organization, agent_id=name.agent, playground=name.trial, writer=self._writer
            )
            blocks = BlockJournal(self._journal, ledger)
            found = self._payers[name] = Payer(BlockMeter(ledger, blocks), blocks, CurrentPrices(prices))
        found.prices.book = prices
        if self._allowed_micros[name] != while_away_micros:
            self._allowed_micros[name] = found.meter.allowance_micros = while_away_micros
        return found

    def paid(self, name: PayerName, call: uuid.UUID) -> CallPaid:
        """The payment of a call; removes it. Call it once, when the call is over."""
        payer = self._payers.get(name)
        return NOTHING if payer is None else payer.blocks.taken(call)

    def client(self, name: PayerName, payer: Payer, upstream: Upstream, *, last: bool) -> MeteredChatClient:
        key = (upstream.key, last)
        client = payer.clients.get(key)
        if client is None:
            organization, endpoint = name.organization, upstream.endpoint
            at = (organization, upstream.key)
            if at not in self._limits:
                pace = SharedPace(organization, endpoint.url)
                self._limits[at] = ConcurrencyLimits(endpoint, pace=pace)
            client = payer.clients[key] = MeteredChatClient(
                endpoint,
                payer.meter,
                payer.prices,
                retry=None if last else BEFORE_ANOTHER,
                breaker=breaker_of(organization, endpoint.url),
                gates=self._limits[at],
            )
        return client

    async def aclose(self) -> None:
        """Settles all blocks. End the calls first.

        Raises:
            LedgerUnavailable: the database was unavailable for too long; journals keep the missing entries.
        """
        for payer in self._payers.values():
            for client in payer.clients.values():
                await client.aclose()
            await payer.meter.aclose()
        await self._writer.close()
