"""Consent to record an agent: checked before anything begins, and each time that a job stores rollouts.

The row decides, not what a worker read of it a while ago. Once it is switched off, the agent's jobs stop at their next
turn or write, which stores nothing; once it is on again they can be resumed, and go on from what was kept. Writes
share an advisory lock on the agent, and a change of its consent takes the lock alone: when the change is committed,
no write that read the old consent is under way.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from agentcore_site.jobs.lease import Lease, MustPause
from agentcore_site.jobs.models import Reason
from agentcore_site.lib.errors import Conflict
from experiences.models import Agent

_LOCK = "hashtextextended('consent ' || %s, 0)"


def consent_changes(agent_id: uuid.UUID) -> None:
    """Waits for writes of rollouts under way, and keeps others away until the transaction ends. Called before the
    agent's row is locked: a write takes this lock before its job's row, and archiving takes job rows too."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", [str(agent_id)])


def may_record(agent_id: uuid.UUID) -> bool:
    """Whether jobs may store what the agent does: it consents, and is not archived."""
    # In SQL: every iteration of every job asks it, and Django takes longer to put it than PostgreSQL to answer.
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM experiences_agent WHERE id = %s AND collects AND archived_at IS NULL", [agent_id])
        return cursor.fetchone() is not None


def consent_withdrawn(agent_ids: Collection[str]) -> set[str]:
    """Agents of these that may not be recorded. Their consent can't change until the transaction ends."""
    with connection.cursor() as cursor:
        for agent_id in sorted(agent_ids):
            cursor.execute(f"SELECT pg_advisory_xact_lock_shared({_LOCK})", [agent_id])
        cursor.execute("SELECT id FROM experiences_agent WHERE id = ANY(%s::uuid[]) AND NOT collects", [[*agent_ids]])
        return {str(id) for (id,) in cursor.fetchall()}


def recording_require(agents: Iterable[Agent], doing: str) -> None:
    """Raises:
    Conflict: one of the agents may not be recorded, so it can't be ``doing``."""
    opted_out = Agent.objects.filter(id__in={agent.id for agent in agents}, collects=False).first()
    if opted_out is not None:
        raise Conflict(f"{opted_out.name} may not be recorded, so it can't be {doing}. Its settings say so.")


def recording_hold(agents: Iterable[Agent]) -> None:
    """No consent of these agents changes until the transaction ends. Called before rows that count them are locked.

    Raises:
        Conflict: one of the agents may not be recorded."""
    named = {str(agent.id): agent.name for agent in agents}
    for id in consent_withdrawn(named):
        raise Conflict(f"{named[id]} may not be recorded. Its settings say so.")


def recording_check(agent_id: uuid.UUID) -> None:
    """Raises:
    MustPause: the agent may not be recorded, or is archived."""
    if not may_record(agent_id):
        raise MustPause(
            Reason.NOT_RECORDED,
            "The agent is archived, or its settings forbid recording. Allow it there and resume: what was kept before"
            " is used.",
        )


@contextmanager
def recording(lease: Lease, agent_id: uuid.UUID, **changes: Any) -> Iterator[None]:
    """A fenced transaction that stores what an agent did. ``changes`` go to the job's row.

    Raises:
        LeaseLost: the fence has moved on; nothing was written.
        MustPause: the agent may not be recorded; nothing was written.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock_shared({_LOCK})", [str(agent_id)])
        with lease.fenced(**changes):
            recording_check(agent_id)
            yield
