"""Executions as they are recorded: checked, without personal data, counted, and every so many an evolution."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db import transaction
from django.db.models import F

from agentcore_site.lib.errors import DomainError, Insufficient, Invalid, TooLarge, Unavailable
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.agents.consent import recording_hold, recording_require
from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.playbooks.leave_out import Draw, draw_of
from experiences.models import Agent, ExecutionTrace, Playbook, PlaybookSection, PlaybookVersion
from experiences.playbooks import metrics
from experiences.playbooks.breaker import Slowed, breaker_notify
from experiences.playbooks.services.evolutions import Idle, evolution_queue, evolution_skip
from experiences.privacy import redact, redact_value

log = logging.getLogger(__name__)

MAX_BATCH: Final = 500
MAX_BYTES: Final = 64 * 1024  # of an execution's inputs, and of its outputs
LONGEST_MS: Final = 1e10  # four months
TASK_LENGTH: Final = 100


@dataclass(frozen=True, slots=True)
class NewTrace:
    """One execution to record. ``context_id`` names the context that the agent received, by the id that came with it.
    ``context_version`` alone says which version that was, and not which of its items were left out. ``used``: the
    items that the agent says its answer used; None: it says nothing."""

    agent: Agent
    inputs: Any
    outputs: Any
    duration_ms: float
    success: bool
    task_id: str = ""
    context_version: int | None = None
    context_id: str = ""
    used: Sequence[str] | None = None

    @property
    def received(self) -> Draw | None:
        """Raises ValueError: see ``draw_of``."""
        if self.context_id:
            return draw_of(self.context_id)
        return None if self.context_version is None else Draw(self.context_version)


def traces_record(actor: Actor, given: Sequence[NewTrace]) -> list[ExecutionTrace]:
    """Stores executions, all of them or none, and lets the playbooks evolve whose turn it is.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: one of them is wrong (``fields`` says which).
        TooLarge: too many at once.
        Conflict: an agent may not be recorded.
    """
    if not given:
        raise Invalid("Give at least one execution.", fields={"traces": "At least one."})
    if len(given) > MAX_BATCH:
        raise TooLarge(f"At most {MAX_BATCH} executions are taken at once; got {len(given)}.")
    agents = {trace.agent.id: trace.agent for trace in given}
    for agent in agents.values():
        require(actor, "trace.record", agent.organization_id)
    recording_require(agents.values(), "recorded")
    rows = [_row(one, f"traces[{index}]" if len(given) > 1 else "") for index, one in enumerate(given)]
    with transaction.atomic():
        recording_hold(agents.values())
        # 1. The playbooks' rows, always in the same order: two batches wait for each other and never in a circle.
        counted = [_count(agents[agent_id], rows) for agent_id in sorted(agents)]
        # 2. Only then rows that point to the organisation: who waits for its lock holds none of ours.
        ExecutionTrace.objects.bulk_create(rows)
    metrics.traces.inc(len(rows))
    for (agent_id, success), n in Counter((row.agent_id, row.success) for row in rows).items():
        metrics.executions.labels(agent_id=str(agent_id), success=str(success).lower()).inc(n)
    for playbook in filter(None, counted):
        _trigger(playbook)
    return rows


def _row(trace: NewTrace, where: str) -> ExecutionTrace:
    if fields := {f"{where}.{name}".lstrip("."): why for name, why in _faults(trace).items()}:
        raise Invalid(" ".join(f"{name}: {why}" for name, why in fields.items()), fields=fields)
    received = trace.received
    named = received is not None and (received.rate > 0 or bool(received.left_out))
    return ExecutionTrace(
        organization_id=trace.agent.organization_id,
        agent=trace.agent,
        task_id=redact(trace.task_id)[:TASK_LENGTH],
        inputs=redact_value(trace.inputs),
        outputs=redact_value(trace.outputs),
        duration_ms=trace.duration_ms,
        success=trace.success,
        context_version=received.version if received else None,
        leave_out_rate=received.rate if received and named else None,
        left_out=list(received.left_out) if received and named else None,
        used=list(dict.fromkeys(trace.used)) if trace.used is not None else None,
    )


def _faults(trace: NewTrace) -> dict[str, str]:
    """Faults of an execution, by field."""
    found = {}
    if not (math.isfinite(trace.duration_ms) and 0 < trace.duration_ms <= LONGEST_MS):
        found["duration_ms"] = "It is a positive number of milliseconds."
    for name, value in (("inputs", trace.inputs), ("outputs", trace.outputs)):
        if why := _value_fault(value):
            found[name] = why
    if len(trace.task_id) > TASK_LENGTH or unstorable(trace.task_id):
        found["task_id"] = f"It is a text of at most {TASK_LENGTH} characters."
    return found | _context_faults(trace)


def _context_faults(trace: NewTrace) -> dict[str, str]:
    try:
        received = trace.received
    except ValueError as error:
        return {"context_id": str(error)}
    if received is None:
        return {"used": "Say by context_id which context it had."} if trace.used else {}
    if trace.context_version not in (None, received.version):
        return {"context_version": f"The context {trace.context_id} is of version {received.version}."}
    if missing := set(trace.used or ()) & set(received.left_out):
        return {"used": f"{min(missing)} was left out of its context."}
    return {}


def _value_fault(value: Any) -> str:
    if why := unstorable(value):
        return f"It can't be stored: {why}."
    if len(orjson.dumps(value)) > MAX_BYTES:
        return f"It is larger than {MAX_BYTES // 1024} KB."
    return ""


def _count(agent: Agent, rows: Sequence[ExecutionTrace]) -> Playbook | None:
    """Counts the agent's executions in its playbook, and for each item how those ended that had it in their context."""
    mine = [row for row in rows if row.agent_id == agent.id]
    versions = sorted({row.context_version for row in mine if row.context_version is not None})
    counted = Playbook.objects.filter(agent_id=agent.id)
    if not counted.update(traces=F("traces") + len(mine), pending=F("pending") + len(mine)):
        if versions:
            message = "The agent has no playbook, so its context can't have held a version of one."
            raise Invalid(message, fields={"context_version": message})
        return None
    playbook = counted.select_related("agent").get()
    outcomes: Counter[tuple[str, bool]] = Counter()
    for version in versions:
        items = _items(playbook, version)
        for row in (row for row in mine if row.context_version == version):
            outcomes.update((item, row.success) for item in _in_context(row, items, agent))
    _credit(playbook, outcomes)
    return playbook


def _items(playbook: Playbook, version: int) -> frozenset[str]:
    stored = PlaybookVersion.objects.filter(playbook=playbook, number=version).values_list("sections", flat=True)
    sections = stored.first()
    if sections is None:
        message = f"The playbook has no version {version}; it is at version {playbook.version}."
        raise Invalid(message, fields={"context_version": message})
    return frozenset(section["id"] for section in sections)


def _in_context(row: ExecutionTrace, items: frozenset[str], agent: Agent) -> frozenset[str]:
    """The items of a version that an execution is known to have had in its context. Raises Invalid."""
    named = frozenset([*(row.left_out or ()), *(row.used or ())])
    if unknown := named - items:
        field = "used" if unknown & frozenset(row.used or ()) else "context_id"
        message = f"Version {row.context_version} of the playbook has no item {min(unknown)[:20]}."
        raise Invalid(message, fields={field: message})
    if row.left_out is None and agent.leave_out_rate:
        return frozenset()  # the version alone does not say which items were left out
    return items - frozenset(row.left_out or ())


def _credit(playbook: Playbook, outcomes: Counter[tuple[str, bool]]) -> None:
    """One statement for all items with the same counts; without left out items that is one for all."""
    alike: dict[tuple[int, int], list[str]] = {}
    for item in {item for item, _ in outcomes}:
        alike.setdefault((outcomes[item, True], outcomes[item, False]), []).append(item)
    for (helpful, harmful), items in sorted(alike.items()):
        PlaybookSection.objects.filter(playbook=playbook, handle__in=items).update(
            usage=F("usage") + helpful + harmful, helpful=F("helpful") + helpful, harmful=F("harmful") + harmful
        )


def _trigger(playbook: Playbook) -> None:
    """Queues an evolution if its turn has come, in a transaction of its own: recording never fails for it."""
    own = evolution_settings(playbook.agent)
    frequency = own.frequency
    if not (own.enabled and playbook.pending >= frequency):
        return
    try:
        with transaction.atomic():
            # The conditional update is the trigger: of all who recorded, one finds the count that high.
            turn = Playbook.objects.filter(id=playbook.id, pending__gte=frequency)
            if turn.update(pending=F("pending") % frequency):
                _queue(playbook)
    except Slowed as error:
        Playbook.objects.filter(id=playbook.id).update(last_error=error.message)
        breaker_notify(playbook, error)
    except (Insufficient, Unavailable) as error:  # the count was rolled back: the next execution asks again
        Playbook.objects.filter(id=playbook.id).update(last_error=error.message)
    except DomainError as error:
        log.info("no evolution of agent %s now: %s", playbook.agent_id, error.message)


def _queue(playbook: Playbook) -> None:
    """One that could change nothing has had its turn: the next one comes as many executions later."""
    try:
        with transaction.atomic():
            evolution_queue(None, playbook, trigger="traces")
    except Idle as idle:
        evolution_skip(playbook, idle)
        log.info("no evolution of agent %s: %s", playbook.agent_id, idle.message)
