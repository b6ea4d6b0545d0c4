"""The protocol of a kind of job. Training, evaluation and evolution register theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.registry import Registry


@dataclass(frozen=True)
class Progressed:
    """What a slice ends with. ``finished`` False: there is more to do; the job takes its next turn."""

    finished: bool
    reason: str = ""


class JobKind(Protocol):
    """Does one slice of a job. Called with a living lease; must call ``lease.check()`` often, write only through
    fenced transactions (``lease.fenced()``), and leave everything so that another worker can go on from there."""

    def advance(self, job: Job, lease: Lease) -> Progressed: ...

    def stopped(self, job: Job) -> None:
        """Called in the transaction that ends or pauses the job: last words to its own rows."""
        ...

    def resume_check(self, job: Job) -> None:
        """Called before a person resumes the job.

        Raises:
            Conflict: it would stop again at once; the message says what has to change first.
        """
        ...


@runtime_checkable
class AboutAgent(Protocol):
    """What a kind may have besides: the agent that a job is about, by which people choose what they are told."""

    def agent_of(self, job: Job) -> UUID | None: ...


@runtime_checkable
class LoadedAhead(Protocol):
    """What a kind may have besides: it loads what each of its slices needs. A worker calls it before it forks, so that
    its children share one copy of it."""

    def load(self) -> None: ...


kinds: Registry[JobKind] = Registry("job kind", entry_point_group="agentcore.job_kinds")


def kinds_load() -> None:
    """Loads what our own kinds of jobs need. What a package of others needs is loaded with its first slice: if that
    fails, it fails a job, and no worker."""
    for name in kinds.built_in():
        kind = kinds.get(name)
        if isinstance(kind, LoadedAhead):
            kind.load()
