"""Evolutions: queued, retried, their outcome written. A worker's part is in ``evolution.execution``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict, DomainError, Insufficient, TooMany, Unavailable
from agentcore_site.lib.money_format import apart, money
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.selectors import budget_preflight
from budgets.services import budget_open_job
from experiences.agents.consent import recording_require
from experiences.agents.evolution_settings import evolution_settings
from experiences.learning.lessons.guards import Runs
from experiences.learning.playbooks.curator import curate
from experiences.learning.playbooks.deltas import Curated, Delta, State
from experiences.learning.playbooks.replacement import no_room, places
from experiences.lessons.services.review_events import review_ask
from experiences.models import Agent, ContextDelta, Evolution, Playbook
from experiences.playbooks import metrics
from experiences.playbooks.breaker import breaker_check
from experiences.playbooks.evolution.costs import evolution_worst_case_micros
from experiences.playbooks.item_effects import effects_of, judged_effects
from experiences.playbooks.priority import priority_check
from experiences.playbooks.selectors import WAITING, agent_holder, evolution_left_micros, sections_of
from experiences.playbooks.services.evolution_alerts import evolution_alerts, evolution_queue_alert
from experiences.playbooks.services.versions import (
    VersionEntry,
    VersionMoved,
    delta_rows,
    names_of,
    rules_of_evolution,
    version_claim,
    version_store,
)

EVOLUTION: Final = "evolution"
EVOLVED: Final = "evolved"
SKIPPED: Final = "evolution.skipped"
MOST_WAITING: Final = 20  # suggestions of one playbook that wait for a person


class Idle(Conflict):
    """An evolution could change nothing, so that no model is asked. ``cause`` is "full" or "waiting"."""

    def __init__(self, cause: str, why: str) -> None:
        super().__init__(f"An evolution would be paid for and could change nothing: {why}.")
        self.cause = cause


@transaction.atomic
def evolution_queue(actor: Actor | None, playbook: Playbook, *, trigger: str = "request") -> Evolution:
    """Queues one evolution. ``actor`` is None for the system itself, when enough executions were recorded.

    Raises:
        Missing, Forbidden: the actor may not.
        Unavailable: evolution is switched off or paused by its breaker, or the agent has no model to ask.
        TooMany: an evolution of this agent is under way, or a limit on active jobs is reached.
        Conflict: another job changes the agent, or the agent may not be recorded.
        Idle: it could change nothing.
        Insufficient: this month's budget for evolution, or another of the chain, has too little left.
    """
    if actor is not None:
        require(actor, "playbook.evolve", playbook.organization_id)
    evolution_check(playbook)
    agent = Agent.objects.select_related("organization", "endpoint").get(id=playbook.agent_id)
    recording_require([agent], EVOLVED)
    # Asked before the row is written: an insert would wait for a worker that is just ending the other job.
    _refuse_beside(agent)
    idle_check(playbook)
    breaker_check(playbook)
    limit_micros = _affordable_micros(agent)
    evolution_queue_alert(agent)
    job = _submitted(actor, agent)
    evolution = Evolution.objects.create(
        job=job, organization_id=agent.organization_id, playbook=playbook, agent=agent, trigger=trigger
    )
    budget_open_job(
        actor, job, agent_id=agent.id, limit_micros=limit_micros, note="what is left for evolution this month"
    )
    record(actor, "evolution.queued", evolution, after={"agent": agent.slug, "trigger": trigger})
    return evolution


def evolution_retry(actor: Actor, evolution: Evolution) -> Job:
    """Queues a failed evolution again, out of the dead letters: it makes new model calls.

    Raises:
        Missing, Forbidden: the actor may not.
        Unavailable: evolution is switched off.
        Conflict: it did not fail, another job changes the agent, or the agent may not be recorded.
    """
    require(actor, "playbook.evolve", evolution.organization_id)
    evolution_check(evolution.playbook)
    recording_require([evolution.agent], EVOLVED)
    return lifecycle.resume(actor, evolution.job)


def evolution_check(playbook: Playbook) -> None:
    """Raises:
    Unavailable: evolution is switched off on this site.
    Conflict: the agent does not evolve."""
    if not settings.ACE_ENABLED:
        raise Unavailable("Evolution is switched off on this site (ACE_ENABLED).")
    if not playbook.agent.evolves:
        raise Conflict("This playbook does not evolve: it only changes by hand. Switch it on first.")


def evolution_fault(playbook: Playbook) -> str:
    """Why it can't evolve now, in a sentence; "" if it can."""
    try:
        evolution_check(playbook)
        agent = Agent.objects.select_related("organization", "endpoint").get(id=playbook.agent_id)
        recording_require([agent], EVOLVED)
        _refuse_beside(agent)
        idle_check(playbook)
        breaker_check(playbook)
        _affordable_micros(agent)
    except DomainError as error:
        return error.message
    return "" if playbook.traces else "No execution was recorded yet, so there is nothing to learn from."


def idle_check(playbook: Playbook) -> None:
    """Raises:
    Idle: as many suggestions as there may be wait for a person, or no new item would have a place."""
    waiting = playbook.deltas.filter(state__in=WAITING).count()
    if waiting >= MOST_WAITING:
        raise Idle("waiting", f"{waiting} suggestions wait for a person in the review queue. Decide on them first")
    most = evolution_settings(playbook.agent).max_sections
    if playbook.section_count >= most:
        sections = sections_of(playbook)
        if why := no_room(sections, judged_effects(playbook, sections), most):
            raise Idle("full", why)


def evolution_skip(playbook: Playbook, idle: Idle) -> None:
    """Writes down that an evolution whose turn it was is not paid for. The audit log has one line for each cause since
    the last evolution, since the turn comes every few executions."""
    metrics.evolutions.labels(outcome="skipped").inc()
    with everything():  # the caller is a service, which reads no audit log
        lines = AuditEvent.objects.filter(target_id=str(playbook.pk), action=SKIPPED, after__cause=idle.cause)
        if playbook.last_evolution_at is not None:
            lines = lines.filter(at__gt=playbook.last_evolution_at)
        known = lines.exists()
    if not known:
        record(None, SKIPPED, playbook, after={"cause": idle.cause, "why": idle.message})


def _refuse_beside(agent: Agent) -> None:
    """Raises:
    TooMany, Conflict: a job holds the agent; the message says which."""
    holder = agent_holder(agent.id)
    if holder is None:
        return
    if holder.kind == "evolution":
        raise TooMany("An evolution of this agent is already in progress. Wait until it ends, or cancel it.")
    raise Conflict(
        f"The job “{holder}” ({holder.kind}, {holder.status}) changes this agent now, and one job at a time may."
        " Wait until it ends, or cancel it."
    )


def _affordable_micros(agent: Agent) -> int:
    """Budget left for the agent's evolutions this month, which an evolution fits at its highest cost.

    Raises:
        Unavailable: there is no model to ask, or it has no price.
        Insufficient: a budget has too little left.
    """
    if agent.archived_at is not None:
        raise Conflict("This agent is archived.")
    wanted_micros = evolution_worst_case_micros(agent)
    left_micros = evolution_left_micros(agent)
    if left_micros < wanted_micros:
        most, room = apart(wanted_micros, left_micros)
        message = (
            f"An evolution may cost {most}{_of_rounds(agent)}, and {room} of"
            f" ${evolution_settings(agent).monthly_budget_usd:,.2f} is left for this agent's evolutions this month"
            " (ACE_MONTHLY_BUDGET_USD, or the agent's own limit)."
        )
        raise Insufficient(message, fields={"budget": f"{money(left_micros)} is left."})
    budget_preflight(organization_id=agent.organization_id, agent_id=agent.id, wanted_micros=wanted_micros)
    priority_check(agent, wanted_micros)
    return left_micros


def _of_rounds(agent: Agent) -> str:
    rounds = evolution_settings(agent).reflection_rounds
    return f" with {rounds} round{'' if rounds == 1 else 's'} of reflection" if rounds else ""


def _submitted(actor: Actor | None, agent: Agent) -> Job:
    try:
        return lifecycle.submit(
            actor,
            kind="evolution",
            organization=agent.organization,
            title=f"Evolve the playbook of {agent.name}",
            exclusive_key=f"agent:{agent.id}",
        )
    except Conflict:
        _refuse_beside(agent)  # another job was first by a moment: say which
        raise


# -- what a worker writes ----------------------------------------------------------------------------------------------


def evolution_apply(
    evolution: Evolution, playbook: Playbook, deltas: Sequence[Delta], *, untrusted: Runs, spent: tuple[int, int]
) -> Curated:
    """Curates a batch and writes what came of it, in the worker's fenced transaction: the new version if there is one,
    a row for each delta, the figures. ``spent`` is (micro-dollars, tokens).

    Raises:
        VersionMoved: the playbook was changed meanwhile; nothing was written.
    """
    by = f"{EVOLUTION} {str(evolution.job_id)[-6:]}"
    rules, sections = rules_of_evolution(playbook.agent, untrusted), sections_of(playbook)
    # Inputs are read only where an item has to make room.
    full = len(sections) + len(deltas) > rules.max_sections
    effects = judged_effects(playbook, sections) if full else effects_of(playbook)
    if full:
        rules = replace(rules, places=places(sections, effects, rules.max_sections))
    curated = curate(sections, deltas, rules, names_of(playbook), effects)
    before = playbook.version
    # The playbook's row first: other writers wait here, holding nothing that we need.
    _count(playbook, curated, deltas)
    rows = delta_rows(playbook, deltas, curated, by=by, job=evolution.job)
    ContextDelta.objects.bulk_create(rows)
    if waiting := sum(row.state in WAITING for row in rows):
        review_ask(playbook.agent, waiting, "change of its playbook", owner=evolution.job.created_by)
    if curated.changed:
        behind = dict(enumerate(rows))
        entry = VersionEntry("evolved", by, evolution.job)
        version_store(playbook, curated.sections, curated.changes, entry, behind)
    states = Counter(str(verdict.state) for verdict in curated.verdicts)
    Evolution.objects.filter(job_id=evolution.job_id).update(
        version_before=before,
        version_after=playbook.version,
        outcome=dict(states),
        cost_micros=spent[0],
        tokens=spent[1],
        settled_at=timezone.now(),
    )
    for state, n in states.items():
        metrics.deltas.labels(state=state).inc(n)
    for delta in deltas:
        metrics.confidence.observe(delta.confidence)
    metrics.evolutions.labels(outcome="success").inc()
    return curated


def _count(playbook: Playbook, curated: Curated, deltas: Sequence[Delta]) -> None:
    counted = {
        "evolutions": F("evolutions") + 1,
        "successes": F("successes") + 1,
        "deltas_generated": F("deltas_generated") + len(deltas),
        "deltas_applied": F("deltas_applied") + curated.count({State.APPLIED, State.MERGED}),
        "confidence_sum": F("confidence_sum") + sum(delta.confidence for delta in deltas),
        "last_error": "",
        "last_evolution_at": timezone.now(),
    }
    if curated.changed:
        version_claim(playbook, curated.sections, **counted)
    elif not Playbook.objects.filter(id=playbook.id, version=playbook.version).update(**counted):
        raise VersionMoved(playbook.version)


def evolution_stopped(job: Job) -> None:
    """The job failed, or waits: its playbook says why. In the transaction that moves the job."""
    if not job.error:
        return
    failed = {"evolutions": F("evolutions") + 1, "failures": F("failures") + 1} if job.status == "failed" else {}
    if failed:
        Evolution.objects.filter(job=job).update(tries=F("tries") + 1)
        evolution_alerts(Evolution.objects.select_related("agent__organization", "job").get(job=job))
        metrics.evolutions.labels(outcome="failure").inc()
    Playbook.objects.filter(history__job=job).update(last_error=job.error[:1000], **failed)
