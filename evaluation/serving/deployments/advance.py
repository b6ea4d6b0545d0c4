"""Automatic steps of a deployment: adds evidence; promotes, ends or rolls back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum
from django.utils import timezone

from agentcore_site.ids import uuid7_at
from agentcore_site.lib.money import dollars
from evaluation.serving.deployments.rules import HOUR, YOU, DeploymentRule
from evaluation.serving.deployments.services import advance, person_ask, roll_back
from evaluation.serving.deployments.sessions import sessions_of
from evaluation.serving.models import (
    LIVE,
    ArmName,
    CanaryObservation,
    Deployment,
    DeploymentState,
    DeploymentStrategy,
    Feedback,
    ProductionTrace,
    TraceStatus,
)
from evaluation.serving.monitoring.fixed_rate import FixedRate
from evaluation.serving.monitoring.guardrails import ALPHA, Alarm, CanarySession, Monitor
from evaluation.serving.monitoring.non_inferiority import NoWorse

log = logging.getLogger(__name__)

BATCH: Final = 5_000
BASE: Final = 1_000  # requests of the old release that give its failure rate
HISTORY: Final = 240  # analyses that the chart shows
FEEDBACK_WITHIN: Final = timedelta(minutes=1)  # late feedback is read again for so long, until its answer has a reward
SCORED_WITHIN: Final = timedelta(seconds=30)  # then a session is settled without a reward
WORDS: Final = {
    "failures": "fails more often",
    "reward": "earns less",
    "safety": "has more safety findings",
    "session_failures": "fails more often in the course of a session",
    "session_reward": "earns less in the course of a session",
}


def deployments_advance() -> int:
    """Takes one step with each live deployment. Returns the number of live deployments."""
    ids = list(live_deployments().values_list("pk", flat=True))
    for pk in ids:
        try:
            _advance(pk)
        except Exception:  # a deployment whose step fails must not hold up the others
            log.exception("deployment %s could not be stepped", pk)
    return len(ids)


def live_deployments() -> QuerySet[Deployment]:
    return Deployment.objects.filter(state__in=LIVE)


@transaction.atomic
def _advance(pk: UUID) -> None:
    rows = Deployment.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).select_related(
        "release", "agent"
    )
    deployment = rows.filter(pk=pk, state__in=LIVE).first()
    if deployment is None:  # another tick has it, or it has just ended
        return
    rule = DeploymentRule.from_json(deployment.rule)
    if deployment.strategy == DeploymentStrategy.CANARY:
        found = _canary(deployment, rule)
    elif deployment.strategy == DeploymentStrategy.BLUE_GREEN and deployment.share == 1:
        found = _compare_with_base(deployment)
    else:
        if deployment.strategy == DeploymentStrategy.SHADOW and shadow_spent_micros(deployment) >= rule.budget_micros:
            advance(deployment, note="Its budget is used up.")
        return
    if found is not None:
        roll_back(
            deployment,
            alarm_sentence(found),
            figures={"guardrail": found.guardrail, "e_value": min(found.e_value, 1e12)},
        )
    elif deployment.state == DeploymentState.RUNNING:
        waits = waits_for(deployment, rule)
        if not waits:
            advance(deployment, note=note_without_proof(deployment, rule))
        elif waits == YOU and deployment.asked_at is None:
            person_ask(deployment, note_without_proof(deployment, rule))


def shadow_spent_micros(deployment: Deployment) -> int:
    """Cost of a shadow's answers."""
    found = ProductionTrace.objects.filter(deployment_id=deployment.pk, arm=ArmName.SHADOW)
    return int(found.aggregate(spent_micros=Sum("cost_micros"))["spent_micros"] or 0)


def waits_for(deployment: Deployment, rule: DeploymentRule) -> str:
    """The conditions of the next automatic step; "" if it is due."""
    minutes = (timezone.now() - deployment.step_began_at) / timedelta(minutes=1)
    if deployment.strategy == DeploymentStrategy.CANARY:
        counted = deployment.observations.filter(new=True, at__gte=deployment.step_began_at).exclude(counted_at=None)
        return rule.waits_for(
            deployment.step, minutes=minutes, sessions=counted.count(), unshown=unshown(deployment, rule)
        )
    if deployment.strategy == DeploymentStrategy.BLUE_GREEN and deployment.share == 1:
        return "" if minutes >= rule.watch_minutes else f"{rule.watch_minutes - minutes:.0f} more minutes of watching"
    return YOU


def unshown(deployment: Deployment, rule: DeploymentRule) -> list[str]:
    """The measures of a canary whose non-inferiority is unproven."""
    if rule.margin is None:
        return []
    stored = deployment.monitor.get("no_worse")
    return (NoWorse.from_json(stored) if stored else NoWorse(rule.margin)).unshown


def note_without_proof(deployment: Deployment, rule: DeploymentRule) -> str:
    """Note for a canary that advances, or waits for a person, without proof of non-inferiority; "" with the proof."""
    if deployment.strategy != DeploymentStrategy.CANARY or rule.margin is None or not unshown(deployment, rule):
        return ""
    within = f"within {rule.patience_minutes / HOUR:g} h"
    return f"Not shown {within} to be worse by less than {rule.margin * 100:g} points."


def alarm_sentence(alarm: Alarm) -> str:
    """An alarm as a sentence."""
    error = f"error of at most {100 * ALPHA:g} % over all analyses"
    return f"The new release {WORDS[alarm.guardrail]} than the current one ({error}; e-value {alarm.e_value:,.0f})."


def _canary(deployment: Deployment, rule: DeploymentRule) -> Alarm | None:
    """Adds new sessions to the evidence; returns an alarm."""
    stored = deployment.monitor
    monitor = Monitor.from_json(stored) if "evidence" in stored else Monitor()
    taken = _add_first_requests(deployment, monitor) + _add_rewards(deployment, monitor)
    taken += _add_whole_sessions(deployment, rule, monitor, rated=_new_feedback(deployment))
    if taken:
        analysis = [timezone.now().isoformat(timespec="seconds"), deployment.share, min(monitor.e_value, 1e12)]
        history = thinned([*stored.get("history", []), analysis])
        deployment.monitor = deployment.monitor | monitor.as_json() | {"history": history}
        deployment.save(update_fields=["monitor"])
    return monitor.alarm()


def _add_first_requests(deployment: Deployment, monitor: Monitor) -> int:
    """Adds completed first requests, in their order."""
    fresh = list(deployment.observations.filter(counted_at=None).order_by("id")[:BATCH])
    for observation in fresh:
        monitor.add(
            CanarySession(
                observation.new,
                observation.share,
                1,
                failures=int(observation.failed),
                safety=None if observation.safety is None else min(observation.safety, 1),
                cost=dollars(observation.cost_micros),
                latency=observation.duration_ms,
            )
        )
        if monitor.alarm() is not None:
            break
    return _mark_counted(fresh, "counted_at")


def _add_rewards(deployment: Deployment, monitor: Monitor) -> int:
    """Adds the rewards of first answers."""
    trace = ProductionTrace.objects.filter(pk=OuterRef("trace_id"), reward__isnull=False)
    waiting = deployment.observations.filter(reward_counted_at=None).order_by("id")
    found = list(waiting.annotate(reward=Subquery(trace.values("reward"))).exclude(reward=None)[:BATCH])
    for one in found:
        monitor.add(CanarySession(one.new, one.share, 1, failures=None, reward=one.reward))
    return _mark_counted(found, "reward_counted_at")


def _new_feedback(deployment: Deployment) -> list[CanaryObservation]:
    """Sessions with new feedback, each once."""
    since = uuid7_at(timezone.now() - FEEDBACK_WITHIN)
    recent = Feedback.objects.filter(organization_id=deployment.organization_id, pk__gte=since)
    of_it = recent.filter(trace__deployment_id=deployment.pk, trace__reward__isnull=False)
    sessions = {session or str(pk) for pk, session in of_it.values_list("trace_id", "trace__session")}
    return list(deployment.observations.filter(session__in=sessions, session_counted_at=None).order_by("id"))


def _add_whole_sessions(
    deployment: Deployment, rule: DeploymentRule, monitor: Monitor, *, rated: Sequence[CanaryObservation]
) -> int:
    """Adds whole sessions: the mean reward of sessions with feedback at once, of the others after the time for
    feedback; then, in the order of their begin, the evidence on non-inferiority."""
    window, now = timedelta(minutes=rule.feedback_minutes), timezone.now()
    late = Q(reward_counted_at__isnull=False) | Q(at__lte=now - window - SCORED_WITHIN)
    waiting = deployment.observations.filter(late, settled_at=None, at__lte=now - window)
    due = list(waiting.order_by("at", "id")[:BATCH])
    known = sessions_of(deployment, [*rated, *due], window)
    for one in rated:
        monitor.add(CanarySession(one.new, one.share, 1, failures=None, session_reward=known[one.pk].reward))
    before = {observation.pk for observation in rated}
    for one in due:
        session = known[one.pk]
        counted = one.session_counted_at is not None or one.pk in before
        reward = None if counted else session.reward
        monitor.add(
            CanarySession(
                one.new,
                one.share,
                session.requests,
                failures=None,
                session_failures=session.failures,
                session_reward=reward,
            )
        )
    if rule.margin is not None and due:
        stored = deployment.monitor.get("no_worse")
        no_worse = NoWorse.from_json(stored) if stored else NoWorse(rule.margin)
        for one in due:
            session = known[one.pk]
            failures = session.failures / session.requests
            no_worse.add(new=one.new, share=one.share, failures=failures, score=session.score)
        deployment.monitor = deployment.monitor | {"no_worse": no_worse.as_json()}
    _mark_counted(due, "reward_counted_at")
    _mark_counted([*rated, *due], "session_counted_at")
    return _mark_counted(due, "settled_at") + len(rated)


def _mark_counted(rows: Sequence[CanaryObservation], moment: str) -> int:
    """Marks the observations as counted. Returns their number."""
    waiting = CanaryObservation.objects.filter(pk__in=[row.pk for row in rows], **{moment: None})
    waiting.update(**{moment: timezone.now()})
    return len(rows)


def _compare_with_base(deployment: Deployment) -> Alarm | None:
    """Compares the failures after a blue-green switch with the failure rate of the release before."""
    rate = FixedRate.from_json(deployment.monitor["rate"]) if "rate" in deployment.monitor else _base_rate(deployment)
    fresh = list(deployment.observations.filter(counted_at=None).order_by("id")[:BATCH])
    for observation in fresh:
        rate.add(failed=observation.failed)
        if rate.e_value >= 1 / ALPHA:
            break
    CanaryObservation.objects.filter(pk__in=[observation.pk for observation in fresh]).update(counted_at=timezone.now())
    deployment.monitor = {"rate": rate.as_json()}
    deployment.save(update_fields=["monitor"])
    return Alarm("failures", rate.e_value) if rate.e_value >= 1 / ALPHA else None


def _base_rate(deployment: Deployment) -> FixedRate:
    before = ProductionTrace.objects.filter(agent_id=deployment.agent_id, release_id=deployment.previous_id)
    answered = list(before.exclude(arm=ArmName.SHADOW).order_by("-pk").values_list("status", flat=True)[:BASE])
    return FixedRate.above(sum(one != TraceStatus.OK for one in answered), len(answered))


def thinned(history: Iterable[Any]) -> list[Any]:
    """The history with every second analysis of its older half dropped, if it is too long."""
    found = list(history)
    if len(found) <= HISTORY:
        return found
    half = len(found) // 2
    return found[:half:2] + found[half:]
