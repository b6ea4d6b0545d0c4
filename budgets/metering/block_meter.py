"""One hold for many calls, so that a call need not wait for a transaction of its own. Pure, no Django.

A block is a hold in the ledger that calls draw their worst cases from. It is settled once with what they came to, when
it is used up or ``seconds`` old and the last of its calls has ended; what was not drawn is given back then. So what a
budget says is ``seconds`` behind at most, and never below what is owed.

While the ledger can't be reached, calls may be paid from an allowance: a block that is booked in the ledger later.
Each step is written to a ``BlockRecord`` before it is relied on, so that the blocks of a process that was killed can
be settled exactly.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from budgets.meter_port import Bill, BudgetRefused, CallKey, Meter, MeterFailure
from budgets.pricing import Usage

log = logging.getLogger(__name__)

MOST: Final = 256  # calls that a block is made for
SECONDS: Final = 2.0
AGAIN: Final = 1.0  # seconds between tries to book a block that the ledger does not know
SOURCES: Final = ("none", "provider", "table", "estimate")  # of an amount, the least certain one last


Line = tuple[str, str]  # purpose and model


class BookingMeter(Meter, Protocol):
    """A meter that can book spending without a hold."""

    async def book(self, call: CallKey, bill: Bill) -> None:
        """Raises MeterFailure: the ledger is away."""


class BlockRecord(Protocol):
    """A record of blocks outside of the process, kept until the ledger has all of it."""

    def opened(self, hold: CallKey, *, away: bool) -> Any:
        """A block begins; ``away``: without the ledger. What is returned is handed to ``closed``."""

    def drawn(self, hold: CallKey, call: str, amount_micros: int) -> None: ...

    def billed(self, hold: CallKey, call: str, amount_micros: int) -> None: ...

    def closed(self, hold: CallKey, opened: Any) -> None:
        """Its bill was handed to the ledger."""


@dataclass(eq=False, slots=True)
class Block:
    hold: CallKey
    left_micros: int
    low_micros: int = 0  # what is left when the next one is asked for
    away: bool = False
    closing: bool = False
    drawn_micros: dict[str, int] = field(default_factory=dict)  # of calls under way
    calls: int = 0
    spent_micros: int = 0
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    source: str = "none"
    latency_ms: int = 0
    opened: Any = None

    def add(self, bill: Bill) -> None:
        self.calls += 1
        self.spent_micros += bill.amount_micros
        self.latency_ms += bill.latency_ms
        self.source = max(self.source, bill.source, key=SOURCES.index)
        if one := bill.usage:
            self.usage = self.usage + one

    @property
    def bill(self) -> Bill:
        """The sum of its calls' bills; its latency is their mean."""
        return Bill(self.spent_micros, self.usage, self.source, round(self.latency_ms / max(1, self.calls)))


@dataclass(frozen=True, eq=False, slots=True)
class ComingBlock:
    """The next block: for which amount it was asked, and whether calls wait for it."""

    task: asyncio.Task[Block]
    amount_micros: int
    waited: bool

    @property
    def failure(self) -> BaseException | None:
        """Why it could not be held, once its task is over."""
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()


class BlockMeter:
    """``Meter`` around another, for the calls of one payer. Belongs to one event loop.

    ``allowance_micros`` may be spent while the ledger is away.
    """

    def __init__(
        self,
        meter: BookingMeter,
        record: BlockRecord,
        *,
        allowance_micros: int = 0,
        most: int = MOST,
        seconds: float = SECONDS,
    ) -> None:
        self._meter, self._record = meter, record
        self._most, self._seconds = most, seconds
        self.allowance_micros = allowance_micros
        self._blocks: dict[Line, Block] = {}  # the open one by purpose and model
        self._sizes: dict[Line, int] = {}  # calls that the next one is made for
        self._coming: dict[Line, ComingBlock] = {}  # the one after the open one
        self._waiting: Counter[Line] = Counter()  # calls that wait for it
        self._paid_by: dict[str, Block] = {}  # by call
        self._late: set[asyncio.Task[Any]] = set()
        self._names = itertools.count(1)
        self._name = f"block/{uuid.uuid4().hex[:16]}"

    async def reserve(self, call: CallKey, amount_micros: int) -> None:
        """Raises BudgetRefused, and what the meter raises."""
        line = (call.purpose, call.model)
        block = self._with_room(line, amount_micros)
        if block is None:
            self._waiting[line] += 1
            try:
                while block is None:
                    await self._arrival(line, call, amount_micros)
                    block = self._with_room(line, amount_micros)
            finally:
                self._waiting[line] -= 1
        block.left_micros -= amount_micros
        block.drawn_micros[call.key] = amount_micros
        self._paid_by[call.key] = block
        self._record.drawn(block.hold, call.key, amount_micros)
        if block.left_micros < block.low_micros and line not in self._coming:
            # Held while this block is still used: no call waits.
            self._ask(line, self._held(call, amount_micros, min(2 * self._sizes[line], self._most)), amount_micros)

    async def settle(self, call: CallKey, bill: Bill) -> None:
        block = self._paid_by.pop(call.key, None)
        if block is None:
            return
        self._record.billed(block.hold, call.key, bill.amount_micros)
        drawn_micros = block.drawn_micros.pop(call.key)
        block.add(bill)
        if bill.amount_micros < drawn_micros and not block.closing:
            block.left_micros += drawn_micros - bill.amount_micros
        if block.closing and not block.drawn_micros:
            await self._settled(block)

    async def aclose(self) -> None:
        """Settles what is open: end the calls first."""
        for line, coming in list(self._coming.items()):
            await self._unused(line, coming)
        for line in list(self._blocks):
            await self._close(line, self._blocks[line])
        if self._late:
            await asyncio.wait(self._late, timeout=AGAIN)
        for task in self._late:
            task.cancel()

    def _with_room(self, line: Line, amount_micros: int) -> Block | None:
        """The open block, or the next one if it is there and this one is used up."""
        block = self._blocks.get(line)
        if block is not None and block.left_micros >= amount_micros:
            return block
        coming = self._coming.get(line)
        if coming is None or not coming.task.done() or coming.failure is not None:
            return None
        del self._coming[line]
        found = coming.task.result()
        if found.left_micros < amount_micros:
            self._late_do(self._settled(found))
            return None
        if block is not None:
            self._grow(line, block)
            if self._retired(line, block):
                self._late_do(self._settled(block))
        self._blocks[line] = found
        asyncio.get_running_loop().call_later(self._seconds, self._expire, line, found)
        return found

    async def _arrival(self, line: Line, call: CallKey, amount_micros: int) -> None:
        """Returns when the next block was held, or could not be for another call's sake. All that wait go on together.

        Raises:
            BudgetRefused: nor can this call's amount.
            MeterFailure: it can't be asked for.
        """
        coming = self._coming.get(line)
        asked_before = coming is not None
        if coming is None:
            coming = self._ask(line, self._instead(line, call, amount_micros), amount_micros)
        await asyncio.wait([coming.task])  # a caller that is cancelled here leaves it to the others
        failure = coming.failure
        if failure is None:
            return
        if self._coming.get(line) is coming:
            del self._coming[line]
        if not asked_before or (coming.waited and amount_micros >= coming.amount_micros):
            raise failure

    def _ask(self, line: Line, holding: Coroutine[Any, Any, Block], amount_micros: int) -> ComingBlock:
        waited = self._waiting[line] > 0
        coming = self._coming[line] = ComingBlock(asyncio.ensure_future(holding), amount_micros, waited)
        self._late.add(coming.task)
        coming.task.add_done_callback(self._late.discard)
        asyncio.get_running_loop().call_later(self._seconds, lambda: self._late_do(self._unused(line, coming)))
        return coming

    async def _instead(self, line: Line, call: CallKey, amount_micros: int) -> Block:
        """A block for all that wait, after the open one gave back what it had left."""
        if (block := self._blocks.get(line)) is not None:
            self._grow(line, block)
            await self._close(line, block)
        size = self._sizes[line] = min(max(self._sizes.get(line, 1), self._waiting[line]), self._most)
        return await self._held(call, amount_micros, size)

    def _grow(self, line: Line, block: Block) -> None:
        """It was used up before its time: the next ones are larger."""
        self._sizes[line] = min(2 * max(self._sizes[line], block.calls + len(block.drawn_micros)), self._most)

    async def _unused(self, line: Line, coming: ComingBlock) -> None:
        """Gives a block back that no call came for."""
        await asyncio.wait([coming.task])
        if self._coming.get(line) is coming:
            del self._coming[line]
            if coming.failure is None:
                await self._settled(coming.task.result())

    async def _held(self, call: CallKey, amount_micros: int, size: int) -> Block:
        """A block for ``size`` calls like this one, or for this one alone where no more fits."""
        for wanted_micros in dict.fromkeys((amount_micros * size, amount_micros)):
            hold = CallKey(f"{self._name}/{next(self._names)}", call.purpose, call.model)
            try:
                await self._meter.reserve(hold, wanted_micros)
            except BudgetRefused:
                if wanted_micros == amount_micros:
                    raise
            except MeterFailure as failure:
                if not failure.passing or self.allowance_micros < amount_micros:
                    raise
                granted_micros = min(self.allowance_micros, wanted_micros)
                self.allowance_micros -= granted_micros
                return self._begun(Block(hold, granted_micros, away=True))
            else:
                return self._begun(Block(hold, wanted_micros, low_micros=wanted_micros // 2 if size > 1 else 0))
        raise AssertionError("one of them was held or refused")

    def _begun(self, block: Block) -> Block:
        block.opened = self._record.opened(block.hold, away=block.away)
        return block

    def _expire(self, line: Line, block: Block) -> None:
        if self._blocks.get(line) is block:
            used = block.calls + len(block.drawn_micros)
            self._sizes[line] = max(1, min(self._sizes[line], 2 * used))
            self._late_do(self._close(line, block))

    async def _close(self, line: Line, block: Block) -> None:
        if self._retired(line, block):
            await self._settled(block)

    def _retired(self, line: Line, block: Block) -> bool:
        """Has no call draw from it any more. Whether it is to be settled now; its last call does it otherwise."""
        if self._blocks.get(line) is block:
            del self._blocks[line]
        before, block.closing = block.closing, True
        return not (before or block.drawn_micros)

    async def _settled(self, block: Block) -> None:
        if block.away:
            self.allowance_micros += block.left_micros  # what was not spent of it
            self._late_do(self._book_later(block))
        else:
            await self._meter.settle(block.hold, block.bill)
            self._record.closed(block.hold, block.opened)

    async def _book_later(self, block: Block) -> None:
        """Books a block that the ledger did not know, as soon as the ledger can be reached."""
        while True:
            try:
                await self._meter.book(block.hold, block.bill)
                break
            except MeterFailure:
                await asyncio.sleep(AGAIN)
        self._record.closed(block.hold, block.opened)

    def _late_do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
