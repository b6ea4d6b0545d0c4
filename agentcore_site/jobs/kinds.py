"""The protocol of a kind of job. Training, evaluation and evolution register theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.registry import Registry, UnknownName


@dataclass(frozen=True)
class Progressed:
    """Result of a slice. ``finished`` False: there is more to do; the job takes its next turn."""

    finished: bool
    reason: str = ""


class JobKind(Protocol):
    """Does one slice of a job. Called with a valid lease; must call ``lease.check()`` often, write only through fenced
    transactions (``lease.fenced()``), and leave a state from which another worker can continue."""

    def advance(self, job: Job, lease: Lease) -> Progressed: ...

    def stopped(self, job: Job) -> None:
        """Called in the transaction that ends or pauses the job: final changes to its own rows."""
        ...

    def resume_check(self, job: Job) -> None:
        """Called before a person resumes the job.

        Raises:
            Conflict: it would stop again at once; the message names what must change first.
        """
        ...


@runtime_checkable
class AboutAgent(Protocol):
    """Optional part of a kind: the agent of a job, by which people choose their notifications."""

    def agent_of(self, job: Job) -> UUID | None: ...


@runtime_checkable
class LoadedAhead(Protocol):
    """Optional part of a kind: loads the needs of each of its slices. A worker calls it before it forks, so that its
    children share one copy."""

    def load(self) -> None: ...


kinds: Registry[JobKind] = Registry("job kind", entry_point_group="agentcore.job_kinds")


def kinds_load() -> None:
    """Loads the needs of the built-in kinds of jobs. A third-party package is loaded with its first slice: a failure
    then fails a job, and not a worker."""
    for name in kinds.built_in():
        kind = kinds.get(name)
        if isinstance(kind, LoadedAhead):
            kind.load()


def agent_of(job: Job) -> UUID | None:
    """The agent that a job is about; None where its kind is about none, or its package was removed."""
    try:
        kind = kinds.get(job.kind)
    except UnknownName:
        return None
    return kind.agent_of(job) if isinstance(kind, AboutAgent) else None
