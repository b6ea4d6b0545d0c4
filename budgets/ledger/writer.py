"""Group commit: what arrives while a transaction runs is written by the next one.

500 rollouts that reserve at once would queue for 500 commits on the same rows. One thread with a connection of its own
takes all that waits, writes it as one batch, and hands the outcomes back to the event loops that asked.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections

from agentcore_site.lib.database import TROUBLE as AWAY
from agentcore_site.lib.row_scope import everything
from budgets.ledger import Hold, Reserved, Settled, Settlement, reserve_many, settle_many
from budgets.meter_port import Bill, MeterFailure

log = logging.getLogger(__name__)

T = TypeVar("T")
BATCH: Final = 1_000
LINGER: Final = 0.05  # seconds that settlements may wait for company
PAUSES: Final = (0.05, 0.2, 1.0, 5.0)  # seconds between tries to write a settlement; the last again and again


class LedgerUnavailable(MeterFailure):
    """The ledger can't be written: no call may be made. A hold that may have been written is given back later."""


@dataclass(eq=False, slots=True)
class WriteRequest:
    """Something to be written, and the future of an event loop that waits for it, if one does. No ``work``: it waits
    for everything that was handed over before."""

    work: Hold | Settlement | None
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None


@dataclass(eq=False, slots=True)
class Answers:
    """Outcomes by event loop, so that a batch wakes each loop once and not once per call."""

    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = field(default_factory=dict)

    def add(self, job: WriteRequest, outcome: Any) -> None:
        if job.loop is not None and job.future is not None:
            self.by_loop.setdefault(job.loop, []).append((job.future, outcome))

    def send(self) -> None:
        for loop, answers in self.by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, answers)
            except RuntimeError:  # the loop is closed: no caller waits any more
                log.info("%d outcomes found their event loop closed", len(answers))


class LedgerWriter:
    """One thread that writes holds and settlements in batches. Several meters may share one.

    A caller that holds money waits for the commit, because the call may only be sent then; so holds go first. No caller
    waits for a settlement: until it is written its hold covers it. Settlements are written together, ``linger`` seconds
    after the first of them, and before that where a hold is refused for want of the room that they make.

    ``reserve`` fails at once with ``LedgerUnavailable`` while the database is away; settlements are kept and tried
    again until they are written. ``close`` writes what is left and ends the thread with its connection.
    """

    def __init__(
        self,
        *,
        reserve: Callable[[Sequence[Hold]], list[Reserved]] = reserve_many,
        settle: Callable[[Sequence[Settlement]], list[Settled]] = settle_many,
        linger: float = LINGER,
    ) -> None:
        self._reserve, self._settle = reserve, settle
        self._linger = linger
        self._arrived: queue.SimpleQueue[WriteRequest | None] = queue.SimpleQueue()
        self._handed_over: dict[str, Settlement] = {}  # by key, to be written
        self._first_at = 0.0
        self._unwritten: list[Settlement] = []  # that wait for the database
        self._flushes: list[WriteRequest] = []  # callers that wait until all of these are written
        self._again_at, self._failures = 0.0, 0
        self._deadline = 0.0
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.batches = 0
        self.written = 0

    async def reserve(self, hold: Hold) -> Reserved:
        """The outcome of a hold, once it is committed.

        Raises:
            LedgerUnavailable: the database can't be reached, or the writer is closed.
        """
        return await self._ask(hold)

    def settle(self, settlement: Settlement) -> None:
        """Hands over a settlement. It will be written, however long the database is away; the first of a key counts.

        Raises:
            LedgerUnavailable: the writer is closed.
        """
        self._put(WriteRequest(settlement))

    async def flush(self) -> None:
        """Returns once everything that was handed over before is committed, however long that takes.

        Raises:
            LedgerUnavailable: the writer is closed, or was before it could be written.
        """
        await self._ask(None)

    async def close(self, *, timeout: float = 30.0) -> None:
        """Writes what is left, for at most ``timeout`` seconds, and ends the thread.

        Raises:
            LedgerUnavailable: settlements are left unwritten; their holds will be charged in full.
        """
        await asyncio.to_thread(self.close_now, timeout=timeout)

    def close_now(self, *, timeout: float = 30.0) -> None:
        """``close`` from code without an event loop."""
        with self._guard:
            thread, self._closed = self._thread, True
            if thread is None:
                return
            self._deadline = time.monotonic() + timeout
            self._arrived.put(None)
        thread.join()
        if left := len(self._unwritten) + len(self._handed_over):
            raise LedgerUnavailable(
                f"{left} settlements could not be written in {timeout:g} s; their holds will be charged in full."
            )

    # -- the asking side ---------------------------------------------------------------------------------------------

    async def _ask(self, work: Hold | None) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(WriteRequest(work, loop, future))
        return await future

    def _put(self, job: WriteRequest) -> None:
        with self._guard:
            if self._closed:
                raise LedgerUnavailable("This ledger writer is closed.")
            if self._thread is None or not self._thread.is_alive():  # not yet, or it stayed behind in a fork's parent
                self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
                self._thread.start()
            self._arrived.put(job)

    # -- the writing side --------------------------------------------------------------------------------------------

    @everything()
    def _run(self) -> None:
        try:
            closing = False
            while not closing or (self._unwritten and time.monotonic() < self._deadline):
                jobs, closes = self._gather(closing)
                closing = closing or closes
                try:
                    self._write(jobs, last=closing)
                except Exception as error:  # a mistake of ours: waiting callers must hear of it
                    log.exception("the ledger writer failed")
                    self._fail(jobs, LedgerUnavailable(f"The ledger writer failed: {error}"))
        finally:
            connections.close_all()
            # Callers that still wait for settlements must not wait for ever.
            self._fail(
                self._flushes, LedgerUnavailable("The ledger could not be written; holds will be charged in full.")
            )

    def _gather(self, closing: bool) -> tuple[list[WriteRequest], bool]:
        """All that waits, up to a batch; blocks until there is something, or settlements are due."""
        jobs: list[WriteRequest] = []
        if closing:
            wait = max(0.0, self._again_at - time.monotonic()) if self._unwritten else 0.0
            time.sleep(min(wait, max(0.0, self._deadline - time.monotonic())))
            return jobs, False
        try:
            first = self._arrived.get(timeout=self._patience())
            while first is not None:
                jobs.append(first)
                if len(jobs) == BATCH:
                    return jobs, False
                first = self._arrived.get_nowait()
            return jobs, True
        except queue.Empty:
            return jobs, False

    def _patience(self) -> float | None:
        """Seconds until settlements are due; None where there are none."""
        due = [self._first_at + self._linger] if self._handed_over else []
        due += [self._again_at] if self._unwritten else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _write(self, jobs: Sequence[WriteRequest], *, last: bool) -> None:
        holds: list[WriteRequest] = []
        keys: set[str] = set()
        later: list[Settlement] = []
        first = bool(self._unwritten)
        for job in jobs:
            if isinstance(job.work, Hold):
                # A key that is held again after it was settled has to find that out.
                first = first or job.work.key in self._handed_over
                keys.add(job.work.key)
                holds.append(job)
            elif job.work is None:
                self._flushes.append(job)
            elif job.work.key in keys:
                later.append(job.work)  # a call that was cancelled before it was made
            else:
                self._hand_over(job.work)
        if first:
            self._settle_handed_over(now=bool(holds))
        # What failed before is still there, releases of holds among it. A hold that is taken before its own release is
        # written would lose its cover while the call runs.
        if self._unwritten and holds:
            self._fail(holds, LedgerUnavailable("The ledger can't be written, so no call may be made."))
        else:
            self._reserve_all(holds)
        for settlement in later:
            self._hand_over(settlement)
        if last or self._flushes or self._is_due():
            self._settle_handed_over(now=last)
        if self._flushes and not (self._handed_over or self._unwritten):
            flushes, self._flushes = self._flushes, []
            self._hand_back(flushes, [None] * len(flushes))

    def _hand_over(self, settlement: Settlement) -> None:
        if not self._handed_over:
            self._first_at = time.monotonic()
        self._handed_over.setdefault(settlement.key, settlement)

    def _is_due(self) -> bool:
        now = time.monotonic()
        full = bool(self._handed_over) and (len(self._handed_over) >= BATCH or now >= self._first_at + self._linger)
        return full or (bool(self._unwritten) and now >= self._again_at)

    def _reserve_all(self, jobs: Sequence[WriteRequest]) -> None:
        if not jobs:
            return
        holds = [job.work for job in jobs if isinstance(job.work, Hold)]
        try:
            outcomes = self._twice(self._reserve, holds)
        except AWAY as error:
            self._never_called(holds)
            self._fail(jobs, _no_call(error))
        except (DatabaseError, LookupError) as error:
            self._hand_back(jobs, self._one_by_one(self._reserve, holds, error))
        else:
            if self._handed_over and any(outcome.refusal is not None for outcome in outcomes):
                outcomes = self._with_room(jobs, outcomes)
            self._count(len(jobs))
            self._hand_back(jobs, outcomes)

    def _never_called(self, holds: Iterable[Hold]) -> None:
        """They may be written all the same, if the connection broke in the commit: nothing was called, nothing is
        due."""
        self._unwritten += (Settlement(hold.key, Bill(0, None, "none", error="never called")) for hold in holds)

    def _with_room(self, jobs: Sequence[WriteRequest], outcomes: Sequence[Reserved]) -> list[Any]:
        """The outcomes once the settlements are written, which may make room for those that were refused."""
        self._settle_handed_over(now=True)
        again = [
            job.work for job, one in zip(jobs, outcomes, strict=True) if one.refusal and isinstance(job.work, Hold)
        ]
        if self._unwritten:
            return list(outcomes)
        try:
            found: dict[str, Any] = {one.key: one for one in self._twice(self._reserve, again)}
        except AWAY as error:
            self._never_called(again)
            found = dict.fromkeys((one.key for one in again), _no_call(error))
        except (DatabaseError, LookupError) as error:
            log.warning("holds that were refused could not be asked for again: %s", error)
            found = {}
        return [found.get(outcome.key, outcome) for outcome in outcomes]

    def _settle_handed_over(self, *, now: bool = False) -> None:
        """Writes all settlements; those that failed a moment ago wait for their time, unless ``now``."""
        new, self._handed_over = list(self._handed_over.values()), {}
        if self._unwritten and not now and time.monotonic() < self._again_at:
            self._unwritten += new  # the database was away a moment ago: these queue behind the old
            return
        settlements, self._unwritten = [*self._unwritten, *new], []
        if not settlements:
            return
        try:
            outcomes = self._twice(self._settle, settlements)
        except AWAY as error:
            self._again_at = time.monotonic() + PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._failures += 1
            self._unwritten = settlements
            log.warning("%d settlements wait for the database: %s", len(settlements), error)
            return
        except (DatabaseError, LookupError) as error:
            outcomes = self._one_by_one(self._settle, settlements, error)
        except Exception as error:  # a mistake of ours must not be tried for ever
            log.exception("settling failed, and %d holds will be charged", len(settlements))
            self._fail(self._flushes, LedgerUnavailable(f"Settling failed, and the holds will be charged: {error}"))
            return
        self._failures = 0
        self._count(len(settlements))
        for settlement, outcome in zip(settlements, outcomes, strict=True):
            amount_micros = settlement.bill.amount_micros
            if isinstance(outcome, Settled) and outcome.state == "unknown" and amount_micros:
                log.error("a bill of %d micro-dollars came without a hold: %s", amount_micros, settlement.key)

    def _one_by_one(
        self, function: Callable[[Sequence[T]], list[Any]], work: Sequence[T], error: Exception
    ) -> list[Any]:
        """The database refuses a batch: what is wrong with one must not cost the others theirs."""
        log.error("a batch of %d was refused: %s", len(work), error)
        outcomes: list[Any] = []
        for one in work:
            try:
                outcomes += function([one])
            except (DatabaseError, LookupError) as refused:
                outcomes.append(LedgerUnavailable(f"This can't be written to the ledger: {refused}"))
        return outcomes

    def _count(self, n: int) -> None:
        self.batches += 1
        self.written += n

    def _hand_back(self, jobs: Sequence[WriteRequest], outcomes: Sequence[Any]) -> None:
        answers = Answers()
        for job, outcome in zip(jobs, outcomes, strict=True):
            answers.add(job, outcome)
        answers.send()

    def _fail(self, jobs: Sequence[WriteRequest], error: Exception) -> None:
        answers = Answers()
        for job in jobs:
            answers.add(job, error)
        answers.send()

    def _twice(self, function: Callable[[Sequence[T]], list[Any]], work: Sequence[T]) -> list[Any]:
        """Keys make a second try harmless: a connection that went stale, or broke in a commit, is not the end."""
        try:
            return function(work)
        except AWAY:
            connections.close_all()
        try:
            return function(work)
        except AWAY:
            connections.close_all()
            raise


def _no_call(error: Exception) -> LedgerUnavailable:
    return LedgerUnavailable(f"The ledger can't be written, so no call may be made: {error}")


def _resolve(answers: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
