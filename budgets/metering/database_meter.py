"""The meter that uses the ledger, for one job, one agent's tests, or another spender."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from typing import Final, Self

from asgiref.sync import sync_to_async

from agentcore_site.lib.row_scope import only
from budgets.ledger import LEASE, Hold, Settlement
from budgets.ledger.accounts import Chain, chain_open, month_of
from budgets.ledger.writer import LedgerUnavailable, LedgerWriter
from budgets.meter_port import Bill, CallKey, MeterFailure, SpendingTooFast
from budgets.metering import metrics
from budgets.metering.spending_rate import job_spent_lately, site_rate_limiter

RATE_SECONDS: Final = 5.0  # between two looks at how fast a job spends

__all__ = ["CallRepeated", "DatabaseMeter", "LedgerUnavailable"]


class CallRepeated(MeterFailure):
    """An attempt was settled already and is about to be made again: each attempt needs a key of its own."""

    passing = False


class DatabaseMeter:
    """``Meter`` for one chain of budgets. Use it as an async context manager, or close it at the end.

    Keys are its own: a worker that takes over from a dead one makes the same calls again under the same names, and
    each of them may be billed again. So the dead worker's holds are not taken for this one's; they expire and are
    charged. ``lease`` in seconds: how long a hold may stay unsettled. ``writer`` may be shared between meters, and is
    then closed by the code that made it. ``playground``: its calls have no job, and are the playground's.
    """

    def __init__(
        self,
        *,
        organization_id: uuid.UUID,
        agent_id: uuid.UUID | None = None,
        job_id: uuid.UUID | None = None,
        playground: bool = False,
        lease: float = LEASE,
        writer: LedgerWriter | None = None,
    ) -> None:
        self.organization_id, self.agent_id, self.job_id = organization_id, agent_id, job_id
        self.playground = playground
        self.lease = lease
        self.session = uuid.uuid4().hex[:12]
        self.writer = writer or LedgerWriter()
        self._owns_writer = writer is None
        self._chain: Chain | None = None
        self._opening = asyncio.Lock()
        self._rate_due, self._too_fast = 0.0, ""
        self._asked: set[str] = set()  # holds on their way to the ledger
        self._held: set[str] = set()  # and those that are in it

    async def reserve(self, call: CallKey, amount_micros: int) -> None:
        """Returns once the hold of ``amount_micros`` is committed.

        Raises:
            BudgetRefused: it does not fit a budget.
            LedgerUnavailable: the database can't be reached.
            CallRepeated: an attempt with this key is over, or on its way.
            SpendingTooFast: the job spends far more than its answered calls need.
            ValueError: the amount is negative or beyond reason.
        """
        key = self.stored_key(call)
        if key in self._held:
            return
        await self._check_rate()
        if key in self._asked:
            raise CallRepeated(f"The attempt {call.key!r} is being reserved already.")
        chain = await self._chain_now()
        tags = (call.purpose, call.model, call.iteration, call.rollout)
        hold = Hold(key, chain, amount_micros, *tags, lease=self.lease)
        self._asked.add(key)
        try:
            outcome = await self.writer.reserve(hold)
        except asyncio.CancelledError:
            # Written by now or not: this call will not be made, and no other code will settle it.
            with suppress(LedgerUnavailable):  # closed already: then the hold is charged when it expires
                self.writer.settle(Settlement(key, Bill(0, None, "none", error="cancelled before the call")))
            raise
        finally:
            self._asked.discard(key)
        if outcome.refusal is not None:
            raise outcome.refusal.error()
        if outcome.state != "held":
            raise CallRepeated(f"The attempt {call.key!r} is {outcome.state} already; a new one needs a new key.")
        self._held.add(key)

    async def settle(self, call: CallKey, bill: Bill) -> None:
        """Hands the bill over; it is committed soon, and at the latest when the meter is closed. Idempotent.

        Raises:
            LedgerUnavailable: the meter is closed.
        """
        key = self.stored_key(call)
        if key in self._held:
            self._count(call, bill)
        self._held.discard(key)
        self.writer.settle(Settlement(key, bill))

    async def book(self, call: CallKey, bill: Bill) -> None:
        """Books what was spent while the ledger was away: what no limit has room for becomes debt. Idempotent.

        Raises:
            LedgerUnavailable: it still is.
        """
        key = self.stored_key(call)
        tags = (call.purpose, call.model, call.iteration, call.rollout)
        await self.writer.reserve(Hold(key, await self._chain_now(), 0, *tags, lease=self.lease, late=True))
        self._count(call, bill)
        self.writer.settle(Settlement(key, bill))

    def _count(self, call: CallKey, bill: Bill) -> None:
        if bill.usage is not None:
            labels = {"agent_id": str(self.agent_id or ""), "model": call.model}
            metrics.tokens.labels(**labels, kind="input").inc(bill.usage.input_tokens)
            metrics.tokens.labels(**labels, kind="output").inc(bill.usage.output_tokens)

    async def flush(self) -> None:
        """Returns once every bill is committed; waits for a database that is away.

        Raises:
            LedgerUnavailable: the meter was closed before the database came back.
        """
        await self.writer.flush()

    def stored_key(self, call: CallKey) -> str:
        """The key of the reservation's row."""
        return f"{call.key}@{self.session}"

    async def close(self, *, timeout: float = 30.0) -> None:
        """Writes what is left.

        Raises:
            LedgerUnavailable: settlements were left unwritten after ``timeout`` seconds; their holds will be charged.
        """
        if self._owns_writer:
            await self.writer.close(timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _chain_now(self) -> Chain:
        """This month's chain; a new month has rows of its own."""
        month = month_of()
        if self._chain is None or self._chain.month != month:
            async with self._opening:
                if self._chain is None or self._chain.month != month:
                    self._chain = await sync_to_async(self._open, thread_sensitive=False)()
        return self._chain

    async def _check_rate(self) -> None:
        """Checks now and then how fast the job spends. Raises SpendingTooFast, LedgerUnavailable."""
        if self.job_id is None or time.monotonic() < self._rate_due:
            if self._too_fast:
                raise SpendingTooFast(self._too_fast)
            return
        self._rate_due = time.monotonic() + RATE_SECONDS
        self._too_fast = await sync_to_async(self._rate_refusal, thread_sensitive=False)(self.job_id)
        if self._too_fast:
            raise SpendingTooFast(self._too_fast)

    def _rate_refusal(self, job_id: uuid.UUID) -> str:
        from django.db import DatabaseError, connection

        try:
            brake = site_rate_limiter()
            with only(self.organization_id):
                return brake.refusal(job_spent_lately(self.organization_id, job_id)) if brake.factor else ""
        except DatabaseError as error:
            raise LedgerUnavailable(f"The ledger can't be read, so no call may be made: {error}") from error
        finally:
            connection.close()

    def _open(self) -> Chain:
        from django.db import Error, connection

        try:
            with only(self.organization_id):
                return chain_open(
                    self.organization_id, agent_id=self.agent_id, job_id=self.job_id, playground=self.playground
                )
        except Error as error:
            raise LedgerUnavailable(f"The budgets can't be read, so no call may be made: {error}") from error
        finally:
            connection.close()
