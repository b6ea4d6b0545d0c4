"""One worker's slice of work that is played part by part: the loop that evaluations and suites share.
Rollouts are stored as they end, and a part is committed with its results. A committed part or rollout is never run, or
paid for, again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease, LeaseLost, MustPause, StopRequested
from agentcore_site.jobs.models import Job
from experiences.rollouts.runtimes.base import Halted
from experiences.trajectories.rollout_writer import AWAY, RolloutWriter

PART: Final = 50  # maximum number of queries in a part


class NamedPart(Protocol):
    @property
    def name(self) -> str:
        """Unique among the parts of the work, and the same in each slice."""
        ...


P = TypeVar("P", bound=NamedPart)


class PartsSlice(ABC, Generic[P]):
    """Plays parts until the slice or the work is over."""

    def __init__(self, job: Job, lease: Lease, keeper: RolloutWriter) -> None:
        self.job, self.lease, self._keeper = job, lease, keeper

    def work(self) -> Progressed:
        """Plays parts until the slice or the work is over.

        Raises:
            StopRequested, LeaseLost: the job has to stop; ended rollouts stay.
            MustPause: calls can't be paid for, the model's service is unavailable, or the agent may not be recorded.
        """
        with asyncio.Runner(loop_factory=self.new_loop) as runner:
            try:
                return self._work(runner)
            except Halted as halt:
                self._keeper.rescue()
                raise MustPause(halt.reason, str(halt), halt.retry_after) from halt
            except (StopRequested, LeaseLost, MustPause, *AWAY):
                self._keeper.rescue()
                raise
            finally:
                self._keeper.close()
                runner.run(self.closing())

    def _work(self, runner: asyncio.Runner) -> Progressed:
        parts, done = self.parts(), self.done()
        left = [(index, part) for index, part in enumerate(parts, start=1) if part.name not in done]
        for nth, (index, part) in enumerate(left):
            if self.enough():
                break
            if nth and self.lease.slice_over:  # one part is always played: setup alone may fill a slice
                return Progressed(finished=False)
            self.play(runner, part, progress=index / len(parts))
        runner.run(self.closing())  # the report includes the cost of calls: all of them have to be settled
        self.finish()
        return Progressed(finished=True)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop for playing."""
        return asyncio.new_event_loop()

    def enough(self) -> bool:
        """True if no other part has to be played."""
        return False

    @abstractmethod
    def parts(self) -> Sequence[P]:
        """All parts, in order of play."""

    @abstractmethod
    def done(self) -> set[str]:
        """The names of the committed parts."""

    @abstractmethod
    def play(self, runner: asyncio.Runner, part: P, *, progress: float) -> None:
        """Plays one part and commits it with its results."""

    @abstractmethod
    def finish(self) -> None:
        """Completes the work after the last part, in one fenced transaction."""

    @abstractmethod
    def closing(self) -> Coroutine[Any, Any, None]:
        """Awaited when the work ends, in the same event loop; may be called twice."""
