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

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from budgets.ledger import Hold, Reserved, Settled, Settlement, reserve_many, settle_many
from budgets.meter import Bill, MeterFailure

log = logging.getLogger(__name__)

T = TypeVar("T")
BATCH: Final = 1_000
PAUSES: Final = (0.05, 0.2, 1.0, 5.0)  # seconds between tries to write a settlement; the last again and again
AWAY: Final = (OperationalError, InterfaceError)


class LedgerAway(MeterFailure):
    """The ledger can't be written: no call may be made. A hold that may have been written is given back later."""


@dataclass(eq=False, slots=True)
class Request:
    """Something to be written, and the future of an event loop that waits for it, if one does."""

    work: Hold | Settlement
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None


@dataclass(eq=False, slots=True)
class Answers:
    """Outcomes by event loop, so that a batch wakes each loop once and not once per call."""

    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = field(default_factory=dict)

    def add(self, job: Request, outcome: Any) -> None:
        if job.loop is not None and job.future is not None:
            self.by_loop.setdefault(job.loop, []).append((job.future, outcome))

    def send(self) -> None:
        for loop, answers in self.by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, answers)
            except RuntimeError:  # the loop is closed: nobody waits any more
                log.info("%d outcomes found their event loop closed", len(answers))


class LedgerWriter:
    """One thread that writes holds and settlements in batches. Several meters may share one.

    ``reserve`` fails at once with ``LedgerAway`` while the database is away; settlements are kept and tried again
    until they are written. ``close`` writes what is left and ends the thread with its connection.
    """

    def __init__(
        self,
        *,
        reserve: Callable[[Sequence[Hold]], list[Reserved]] = reserve_many,
        settle: Callable[[Sequence[Settlement]], list[Settled]] = settle_many,
    ) -> None:
        self._reserve, self._settle = reserve, settle
        self._arrived: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._unwritten: list[Request] = []  # settlements that wait for the database
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
            LedgerAway: the database can't be reached, or the writer is closed.
        """
        return await self._ask(hold)

    async def settle(self, settlement: Settlement) -> Settled:
        """The outcome of a settlement, once it is committed, however long that takes.

        Raises:
            LedgerAway: the writer is closed.
        """
        return await self._ask(settlement)

    def tell(self, settlement: Settlement) -> None:
        """Writes a settlement for which nobody waits."""
        self._put(Request(settlement))

    async def close(self, *, timeout: float = 30.0) -> None:
        """Writes what is left, for at most ``timeout`` seconds, and ends the thread.

        Raises:
            LedgerAway: settlements are left unwritten; their holds will be charged in full.
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
        if self._unwritten:
            raise LedgerAway(
                f"{len(self._unwritten)} settlements could not be written in {timeout:g} s; their holds will be"
                " charged in full."
            )

    # -- the asking side ---------------------------------------------------------------------------------------------

    async def _ask(self, work: Hold | Settlement) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(Request(work, loop, future))
        return await future

    def _put(self, job: Request) -> None:
        with self._guard:
            if self._closed:
                raise LedgerAway("This ledger writer is closed.")
            if self._thread is None or not self._thread.is_alive():  # not yet, or it stayed behind in a fork's parent
                self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
                self._thread.start()
            self._arrived.put(job)

    # -- the writing side --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            closing = False
            while not closing or (self._unwritten and time.monotonic() < self._deadline):
                jobs, closes = self._gather(closing)
                closing = closing or closes
                try:
                    self._write(jobs)
                except Exception as error:  # a mistake of ours: whoever waits must hear of it
                    log.exception("the ledger writer failed")
                    self._fail(jobs, LedgerAway(f"The ledger writer failed: {error}"))
        finally:
            connections.close_all()
            # Whoever still waits for a settlement must not wait for ever.
            self._fail(
                self._unwritten, LedgerAway("The ledger could not be written; the hold will be charged in full.")
            )

    def _gather(self, closing: bool) -> tuple[list[Request], bool]:
        """All that waits, up to a batch; blocks until there is something or old settlements are due again."""
        jobs: list[Request] = []
        wait = max(0.0, self._again_at - time.monotonic()) if self._unwritten else None
        if closing:
            time.sleep(min(wait or 0.0, max(0.0, self._deadline - time.monotonic())))
            return jobs, False
        try:
            first = self._arrived.get(timeout=wait)
            while first is not None:
                jobs.append(first)
                if len(jobs) == BATCH:
                    return jobs, False
                first = self._arrived.get_nowait()
            return jobs, True
        except queue.Empty:
            return jobs, False

    def _write(self, jobs: Sequence[Request]) -> None:
        reserving = [job for job in jobs if isinstance(job.work, Hold)]
        settling = [job for job in jobs if isinstance(job.work, Settlement)]
        held = {job.work.key for job in reserving}
        # 1. Settlements first: they make room. But one whose hold came in the same batch has to wait for it.
        self._settle_all([job for job in settling if job.work.key not in held], now=bool(reserving))
        # 2. What failed before is still in the queue, releases of holds among it. A hold that is taken before its own
        #    release is written would lose its cover while the call runs.
        if self._unwritten and reserving:
            self._fail(reserving, LedgerAway("The ledger can't be written, so no call may be made."))
        else:
            self._reserve_all(reserving)
        # 3. Calls that were cancelled before they were made.
        self._settle_all([job for job in settling if job.work.key in held])

    def _reserve_all(self, jobs: Sequence[Request]) -> None:
        if not jobs:
            return
        holds = [job.work for job in jobs if isinstance(job.work, Hold)]
        try:
            outcomes = self._twice(self._reserve, holds)
        except AWAY as error:
            # It may be written all the same, if the connection broke in the commit: nothing was called, nothing is due.
            for hold in holds:
                self._unwritten.append(Request(Settlement(hold.key, Bill(0, None, "none", error="never called"))))
            self._fail(jobs, LedgerAway(f"The ledger can't be written, so no call may be made: {error}"))
        except (DatabaseError, LookupError) as error:
            self._answer(jobs, self._one_by_one(self._reserve, holds, error))
        else:
            self._answer(jobs, outcomes)

    def _settle_all(self, jobs: Sequence[Request], *, now: bool = False) -> None:
        if self._unwritten and not now and time.monotonic() < self._again_at:
            self._unwritten.extend(jobs)  # the database was away a moment ago: new ones queue behind the old
            return
        jobs, self._unwritten = [*self._unwritten, *jobs], []
        if not jobs:
            return
        settlements = [job.work for job in jobs if isinstance(job.work, Settlement)]
        try:
            outcomes = self._twice(self._settle, settlements)
        except AWAY as error:
            self._again_at = time.monotonic() + PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._failures += 1
            self._unwritten = list(jobs)
            log.warning("%d settlements wait for the database: %s", len(jobs), error)
        except (DatabaseError, LookupError) as error:
            self._answer(jobs, self._one_by_one(self._settle, settlements, error))
        except Exception as error:  # a mistake of ours must not leave anybody waiting, nor try for ever
            log.exception("settling failed")
            self._fail(jobs, LedgerAway(f"Settling failed, and the holds will be charged: {error}"))
        else:
            self._failures = 0
            self._answer(jobs, outcomes)

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
                outcomes.append(LedgerAway(f"This can't be written to the ledger: {refused}"))
        return outcomes

    def _answer(self, jobs: Sequence[Request], outcomes: Sequence[Any]) -> None:
        self.batches += 1
        self.written += len(jobs)
        answers = Answers()
        for job, outcome in zip(jobs, outcomes, strict=True):
            answers.add(job, outcome)
        answers.send()

    def _fail(self, jobs: Sequence[Request], error: Exception) -> None:
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


def _resolve(answers: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
