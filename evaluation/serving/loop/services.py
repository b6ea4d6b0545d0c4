"""Writes of learning loops: changes settings, begins and stops turns, and decides on rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.row_checks import check_row, hold_row, known_fields
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.deployments.services import STRATEGIES, deployment_roll_back
from evaluation.serving.loop.selectors import NEEDED, hindrance, loop_of, turn_cost_micros
from evaluation.serving.models import (
    LearningLoop,
    LoopTrigger,
    LoopTurn,
    RowState,
    TurnState,
)
from experiences.models import Agent
from training.config.validation import ConfigError, parse_config
from training.services.launch_defaults import launch_defaults

SETTINGS: Final = (
    "on", "after_traces", "judged_only", "daily", "on_drift", "monthly_usd", "least_rows", "review", "preset", "config",
    "environment_options", "strategy", "rule",
)  # fmt: skip
MOST_TEXT: Final = 300


@transaction.atomic
def loop_change(actor: Actor, agent: Agent, **values: Any) -> LearningLoop:
    """Sets the given ones of ``SETTINGS``; ``rule`` is a ``DeploymentRule`` as JSON, {} for the default. Turns act as
    the person who switches the loop on.

    Raises:
        Missing, Forbidden: the actor may not do all actions of a turn.
        Invalid: a value is wrong (``fields`` names it).
    """
    _require_all(actor, agent)
    hold_row(agent)
    loop = loop_of(agent)
    before = settings_of(loop)
    given = known_fields(values, SETTINGS)
    if "monthly_usd" in given:
        given["monthly_micros"] = micros(given.pop("monthly_usd"))
    for name, value in given.items():
        setattr(loop, name, value)
    _check(loop)
    if loop.on and not before["on"]:
        loop.on_since, loop.acts_as = timezone.now(), Actor.of(actor).user
    loop.save()
    record(actor, "loop.changed", loop, before=before, after=settings_of(loop))
    return loop


def settings_of(loop: LearningLoop) -> dict[str, Any]:
    """The current settings, by the names of ``SETTINGS``."""
    known = {name: getattr(loop, name) for name in SETTINGS if name != "monthly_usd"}
    return known | {"monthly_usd": dollars(loop.monthly_micros)}


@transaction.atomic
def turn_start(actor: Actor, agent: Agent, *, trigger: str = LoopTrigger.HAND) -> LoopTurn:
    """Begins a turn that acts as this person; ``loops_advance`` takes its steps.

    Raises:
        Missing, Forbidden: the actor may not do all actions of a turn.
        Conflict: a turn is live, the month's budget is used up, the gate requires a suite that does not exist, or the
            agent is archived.
    """
    _require_all(actor, agent)
    hold_row(agent)
    if why := hindrance(loop_of(agent)):
        raise Conflict(why)
    last = LoopTurn.objects.filter(agent=agent).order_by("-number").first()
    turn = LoopTurn.objects.create(
        organization_id=agent.organization_id,
        agent=agent,
        number=1 if last is None else last.number + 1,
        trigger=trigger,
        created_by=Actor.of(actor).user,
    )
    record(actor, "loop.turn_started", turn, after={"number": turn.number, "trigger": str(trigger)})
    return turn


@transaction.atomic
def turn_stop(actor: Actor, turn: LoopTurn, *, note: str = "") -> None:
    """Ends a turn: cancels its job and suite runs, and rolls back its live deployment.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it has ended.
    """
    require(actor, "run.cancel", turn.organization_id)
    found = _held(actor, turn)
    why = f"By {Actor.of(actor).name}" + (f": {note.strip()}" if note.strip() else ".")
    if found.deployment is not None:
        with suppress(Conflict):  # it has just ended
            deployment_roll_back(actor, found.deployment, note=f"Turn {found.number} was stopped.")
    turn_end(found, TurnState.STOPPED, why, actor=actor)


@transaction.atomic
def rows_decide(actor: Actor, turn: LoopTurn, *, approve: bool, ids: Iterable[int] | None = None) -> int:
    """Approves or rejects rows of a turn's review; without ``ids`` all waiting rows. A person's decision on a trace
    holds in later turns. Returns the number of rows.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: its review is over.
    """
    found = _held(actor, turn)
    if found.state != TurnState.REVIEWING:
        raise Conflict(f"The review of turn {found.number} is over.")
    rows = found.rows.filter(state=RowState.WAITING) if ids is None else found.rows.filter(pk__in=list(ids))
    state = RowState.APPROVED if approve else RowState.REJECTED
    n = rows.exclude(state=RowState.TAKEN).update(state=state, decided_by=Actor.of(actor).user)
    record(actor, "loop.rows_decided", found, after={"rows": n, "state": str(state)})
    return n


# -- shared with the tick; the caller has locked the row -------------------------------------------------------------


def turn_end(turn: LoopTurn, state: str, reason: str = "", *, actor: Actor | None = None) -> None:
    """Ends a turn and its active jobs, so that nothing more is paid."""
    its = Q(training_run=turn.run_id) | Q(evaluation_run__run=turn.run_id) if turn.run_id else Q()
    for job in Job.objects.filter(its | Q(suite_run__in=turn.suite_runs.all()), status__in=ACTIVE):
        lifecycle.cancel(actor, job)
    turn.state, turn.reason, turn.waits_for, turn.ended_at = state, reason[:MOST_TEXT], "", timezone.now()
    turn.cost_micros = turn_cost_micros(turn)
    turn.save()
    record(actor, "loop.turn_ended", turn, after={"number": turn.number, "state": str(state), "reason": turn.reason})


def _held(actor: Actor, turn: LoopTurn) -> LoopTurn:
    """The current row, locked until the transaction ends. Raises Missing, Forbidden, Conflict."""
    require(actor, "deployment.edit", turn.organization_id)
    rows = LoopTurn.objects.select_for_update(of=("self",), no_key=True).select_related(
        "deployment", "run", "agent", "created_by"
    )
    found = rows.get(pk=turn.pk)
    if not found.live:
        raise Conflict(f"Turn {found.number} has ended: {found.get_state_display().lower()}.")
    return found


def _require_all(actor: Actor, agent: Agent) -> None:
    """Keeps a key from doing through a turn what its scopes do not allow. Raises Missing, Forbidden."""
    for action in NEEDED:
        require(actor, action, agent.organization_id)


def _check(loop: LearningLoop) -> None:
    """Raises Invalid."""
    check_row(loop, exclude=["organization", "agent", "acts_as"])
    if loop.strategy not in STRATEGIES:
        message = "A shadow never serves: choose a canary, blue-green or immediate."
        raise Invalid(message, fields={"strategy": message})
    try:
        if loop.rule:
            DeploymentRule.from_json(loop.rule)
    except (ValueError, KeyError, TypeError) as error:
        message = f"The rule of its deployments is wrong: {error}"
        raise Invalid(message, fields={"rule": message}) from error
    try:
        given = {"preset": loop.preset, **loop.config}
        parse_config(given, runtime=loop.agent.runtime, defaults=launch_defaults(loop.agent, loop.config))
    except ConfigError as error:
        raise Invalid(str(error), fields={"config": str(error)}) from error
