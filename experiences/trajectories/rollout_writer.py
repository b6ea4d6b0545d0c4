"""Writer of finished rollouts of one slice: a dead worker, a pause or an outage loses only rollouts under way.

A thread writes pending rollouts shortly after they end, so that neither the event loop nor the next rollout waits for
the database. While the database is unavailable, pending rollouts are kept and retried.
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

from agentcore_site.jobs.lease import Lease, LeaseLost, MustPause
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.key_errors import KeyUnavailable
from experiences.agents.consent import recording
from experiences.rollouts.types import RolloutKey, Trajectory
from experiences.trajectories.storage import TrajectoryScope, trajectories_kept, trajectories_stored, trajectories_write

log = logging.getLogger(__name__)

LINGER: Final = 0.03  # seconds that a paid rollout waits for others, to be written in one batch
FREE_LINGER: Final = 0.5  # a free rollout can be played again
AGAIN_SECONDS: Final = 0.5
PATIENCE: Final = 15.0  # seconds that a write waits for the database, or for the key that encrypts it
AWAY: Final = (KeyUnavailable, *TROUBLE)


class PendingRollout(NamedTuple):
    """A rollout that has ended, and the future of its caller."""

    owner: TrajectoryScope
    trajectory: Trajectory
    loop: asyncio.AbstractEventLoop | None = None
    written: asyncio.Future[None] | None = None

    @property
    def place(self) -> tuple[str, str, RolloutKey]:
        return self.owner.arm, self.owner.line, self.trajectory.key


class RolloutWriter:
    """Writes the rollouts of one slice. ``save`` or ``rescue`` writes pending rollouts; then ``close`` it."""

    def __init__(self, lease: Lease, agent_id: uuid.UUID, *, paid: bool) -> None:
        self._lease, self._agent_id = lease, agent_id
        self._paid = paid
        self._linger = LINGER if paid else FREE_LINGER
        self._pending: list[PendingRollout] = []
        self._written: set[tuple[str, str, RolloutKey]] = set()  # by arm, line and key
        self._unsure = False  # the last write may have been committed although it failed here
        self._failed: Exception | None = None
        self._writing = threading.Lock()  # one writes at a time
        self._pending_lock = threading.Lock()
        self._arrived, self._closed = threading.Event(), threading.Event()
        self._answers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        self._thread: threading.Thread | None = None

    def stored(
        self, owner: TrajectoryScope, *, iteration: int, scenarios: Collection[int] | None = None
    ) -> dict[RolloutKey, Trajectory]:
        """Rollouts that an earlier attempt stored: reused, never paid for or written a second time."""
        found = trajectories_kept(owner, iteration=iteration, scenarios=scenarios)
        self._written.update((owner.arm, owner.line, key) for key in found)
        return found

    def store(self, owner: TrajectoryScope, trajectory: Trajectory) -> Awaitable[None] | None:
        """Queues a finished rollout, on an event loop. For a paid rollout, returns an awaitable of its write, which
        raises as ``check`` does."""
        pending = PendingRollout(owner, trajectory)
        if self._paid:
            loop = asyncio.get_running_loop()
            pending = pending._replace(loop=loop, written=loop.create_future())
        if pending.place in self._written:
            return None
        with self._pending_lock:
            self._pending.append(pending)
            self._arrived.set()
            if self._thread is None:
                self._thread = threading.Thread(target=copy_context().run, args=[self._run], name="keep", daemon=True)
                self._thread.start()
        return pending.written

    def check(self) -> None:
        """Called before each step of a rollout; costs no query.

        Raises:
            StopRequested: a person asked the slice to stop.
            LeaseLost, MustPause: another worker has the job, or pending rollouts can't be written any more.
        """
        self._lease.check()
        if self._failed is not None:
            raise self._failed

    @contextmanager
    def committing(self, **changes: Any) -> Iterator[None]:
        """A fenced transaction (``recording``) that commits pending rollouts together with the writes of the block.

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
        """Writes pending rollouts; retries while the database is unavailable.

        Raises:
            LeaseLost, MustPause: nothing was written.
        """

        def write_pending() -> None:
            with self.committing():
                pass

        self._patiently(write_pending)

    def rescue(self) -> None:
        """``save`` after another error: a failure is only logged, so that the first error is reported."""
        try:
            self.save()
        except (LeaseLost, MustPause, *AWAY) as error:
            log.warning("finished rollouts are lost: %s", error)

    def drop(self) -> None:
        """Discards pending rollouts: they were replayed."""
        with self._writing, self._pending_lock:
            self._pending.clear()

    def forget(self) -> None:
        """Clears the keys of written rollouts: none of them is queued again."""
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
            if not self._pending:  # they were written with their iteration meanwhile: no session is opened for nothing
                continue
            try:
                with self.committing():
                    pass
            except AWAY as error:
                log.warning("rollouts wait to be written: %s", error)
                self._arrived.set()
                self._closed.wait(AGAIN_SECONDS)
            except Exception as error:  # rollouts raise it at their next step
                self._failed = error
                self._resolve_all(self._pending, error)
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
    def _batch(self) -> Iterator[list[PendingRollout]]:
        """Pending rollouts for one transaction; they are pending again if it fails."""
        with self._writing:
            with self._pending_lock:
                batch, self._pending = self._pending, []
            try:
                yield batch
            except BaseException:
                with self._pending_lock:
                    self._pending = [*batch, *self._pending]
                self._unsure = True
                raise
            self._unsure = False
            self._written.update(one.place for one in batch)
            self._resolve_all(batch)

    def _resolve_all(self, batch: Sequence[PendingRollout], error: Exception | None = None) -> None:
        for one in batch:
            if one.loop is not None and one.written is not None and not one.loop.is_closed():
                one.loop.call_soon_threadsafe(_resolve, one.written, error)

    def _store(self, batch: list[PendingRollout]) -> None:
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
