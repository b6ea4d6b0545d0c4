"""Finished rollouts of one slice, kept as they end: a worker that dies, a pause or an outage costs what was under way.

A thread writes what waits, a moment after it ended, so that neither the event loop nor the next rollout waits for the
database. While the database is away what waits stays, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, NamedTuple

from django.db import connection

from agentcore_site.encryption.errors import KeyUnavailable
from agentcore_site.jobs.lease import Lease, LeaseLost, MustPause
from agentcore_site.lib.database import TROUBLE
from experiences.agents.consent import recording
from experiences.rollouts.types import RolloutKey, Trajectory
from experiences.trajectories.storage import TrajectoryScope, trajectories_kept, trajectories_stored, trajectories_write

log = logging.getLogger(__name__)

LINGER: Final = 0.03  # seconds that a rollout that was paid for waits for company
FREE_LINGER: Final = 0.5  # one that costs nothing is played again
AGAIN_SECONDS: Final = 0.5
PATIENCE: Final = 15.0  # seconds that a write waits for the database, or for the key that encrypts it
AWAY: Final = (KeyUnavailable, *TROUBLE)


class Waiting(NamedTuple):
    """A rollout that has ended, and who waits until it is written."""

    owner: TrajectoryScope
    trajectory: Trajectory
    loop: asyncio.AbstractEventLoop | None = None
    written: asyncio.Future[None] | None = None

    @property
    def place(self) -> tuple[str, str, RolloutKey]:
        return self.owner.arm, self.owner.line, self.trajectory.key


class RolloutKeeper:
    """Keeps the rollouts of one slice. ``close`` it; before that ``save`` or ``rescue`` writes what still waits."""

    def __init__(self, lease: Lease, agent_id: uuid.UUID, *, paid: bool) -> None:
        self._lease, self._agent_id = lease, agent_id
        self._paid = paid
        self._linger = LINGER if paid else FREE_LINGER
        self._waiting: list[Waiting] = []
        self._written: set[tuple[str, str, RolloutKey]] = set()  # by arm, line and key
        self._unsure = False  # the last write may have been done without our knowing
        self._failed: Exception | None = None
        self._turn = threading.Lock()  # one writes at a time
        self._list = threading.Lock()
        self._arrived, self._closed = threading.Event(), threading.Event()
        self._answers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        self._thread: threading.Thread | None = None

    def kept(
        self, owner: TrajectoryScope, *, iteration: int, scenarios: Collection[int] | None = None
    ) -> dict[RolloutKey, Trajectory]:
        """What an earlier attempt kept: used again, never paid for or written a second time."""
        found = trajectories_kept(owner, iteration=iteration, scenarios=scenarios)
        self._written.update((owner.arm, owner.line, key) for key in found)
        return found

    def keep(self, owner: TrajectoryScope, trajectory: Trajectory) -> Awaitable[None] | None:
        """Takes a rollout that has ended, on an event loop. What was paid for can be awaited until it is written; it
        raises what ``check`` does."""
        waiting = Waiting(owner, trajectory)
        if self._paid:
            loop = asyncio.get_running_loop()
            waiting = waiting._replace(loop=loop, written=loop.create_future())
        if waiting.place in self._written:
            return None
        with self._list:
            self._waiting.append(waiting)
            self._arrived.set()
            if self._thread is None:
                self._thread = threading.Thread(target=copy_context().run, args=[self._run], name="keep", daemon=True)
                self._thread.start()
        return waiting.written

    def check(self) -> None:
        """Called before each step of a rollout; costs no query.

        Raises:
            StopRequested: a person asked the slice to stop.
            LeaseLost, MustPause: the job is another worker's, or what waits can't be written any more.
        """
        self._lease.check()
        if self._failed is not None:
            raise self._failed

    @contextmanager
    def committing(self, **changes: Any) -> Iterator[None]:
        """A fenced transaction (``recording``) that writes what waits, and what the block writes, together.

        Raises:
            LeaseLost, MustPause: nothing was written.
        """
        with self._batch() as batch, recording(self._lease, self._agent_id, **changes):
            self._store(batch)
            yield

    def write(self, store: Callable[[], None]) -> None:
        """Runs ``store`` in a fenced transaction, in a thread with a connection of its own, and waits for it: an event
        loop may not ask the database itself. ``store`` may run twice.

        Raises:
            LeaseLost, MustPause: nothing was written.
        """

        def fenced() -> None:
            with recording(self._lease, self._agent_id):
                store()

        self._answers.submit(copy_context().run, self._patiently, fenced).result()

    def save(self) -> None:
        """Writes what waits, also when the database has just come back.

        Raises:
            LeaseLost, MustPause: nothing was written.
        """

        def all_that_waits() -> None:
            with self.committing():
                pass

        self._patiently(all_that_waits)

    def rescue(self) -> None:
        """``save`` where something else went wrong already, and that is what has to be told."""
        try:
            self.save()
        except (LeaseLost, MustPause, *AWAY) as error:
            log.warning("finished rollouts are lost: %s", error)

    def drop(self) -> None:
        """Forgets what waits: it was replayed."""
        with self._turn, self._list:
            self._waiting.clear()

    def forget(self) -> None:
        """Forgets which rollouts were written: none of them comes again."""
        self._written.clear()

    def close(self) -> None:
        self._closed.set()
        self._arrived.set()
        if self._thread is not None:
            self._thread.join()
        self._answers.shutdown()

    # -- writing ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._arrived.wait() and not self._closed.wait(self._linger):
            self._arrived.clear()
            # ``close`` says that it is closed before it wakes this thread: where that fell between the two lines above,
            # the waking was just cleared, and there will be no other.
            if self._closed.is_set():
                return
            if not self._waiting:  # they went with their iteration meanwhile: no session is opened for nothing
                continue
            try:
                with self.committing():
                    pass
            except AWAY as error:
                log.warning("rollouts wait to be written: %s", error)
                self._arrived.set()
                self._closed.wait(AGAIN_SECONDS)
            except Exception as error:  # the rollouts hear of it at their next step
                self._failed = error
                self._answer(self._waiting, error)
                return
            finally:
                connection.close()

    def _patiently(self, work: Callable[[], None]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return work()
            except AWAY as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("a write is tried again: %s", error)
                time.sleep(AGAIN_SECONDS)
            finally:
                connection.close()

    @contextmanager
    def _batch(self) -> Iterator[list[Waiting]]:
        """All that waits, for one transaction; it waits again if that fails."""
        with self._turn:
            with self._list:
                batch, self._waiting = self._waiting, []
            try:
                yield batch
            except BaseException:
                with self._list:
                    self._waiting = [*batch, *self._waiting]
                self._unsure = True
                raise
            self._unsure = False
            self._written.update(one.place for one in batch)
            self._answer(batch)

    def _answer(self, batch: Sequence[Waiting], error: Exception | None = None) -> None:
        for one in batch:
            if one.loop is not None and one.written is not None and not one.loop.is_closed():
                one.loop.call_soon_threadsafe(_resolve, one.written, error)

    def _store(self, batch: list[Waiting]) -> None:
        by_owner: dict[TrajectoryScope, dict[RolloutKey, Trajectory]] = {}
        for one in batch:
            if one.place not in self._written:
                by_owner.setdefault(one.owner, {})[one.trajectory.key] = one.trajectory
        for owner, fresh in by_owner.items():
            # A commit whose answer was lost may have been done.
            known = trajectories_stored(owner, fresh) if self._unsure else set()
            trajectories_write(owner, [one for key, one in fresh.items() if key not in known])


def _resolve(written: asyncio.Future[None], error: Exception | None) -> None:
    if written.done():  # the caller that waited was cancelled
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
