"""A deployment's own steps: evidence is taken in, and it goes on, ends, or is taken back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from agentcore_site.lib.money import dollars
from serving.deployments.rules import DeploymentRule
from serving.deployments.services import advance, roll_back
from serving.models import (
    LIVE,
    ArmName,
    CanaryObservation,
    Deployment,
    DeploymentState,
    DeploymentStrategy,
    ProductionTrace,
    TraceStatus,
)
from serving.monitoring.fixed_rate import FixedRate
from serving.monitoring.guardrails import ALPHA, Alarm, CanarySession, Monitor

log = logging.getLogger(__name__)

BATCH: Final = 5_000
BASE: Final = 1_000  # requests of the old release that its rate of failure is taken from
HISTORY: Final = 240  # looks that the chart shows
WORDS: Final = {
    "failures": "fails more often",
    "reward": "earns less",
    "safety": "has more findings of safety",
}


def deployments_tick() -> int:
    """Takes one step with each live deployment. Returns how many there are."""
    ids = list(Deployment.objects.filter(state__in=LIVE).values_list("pk", flat=True))
    for pk in ids:
        try:
            _tick(pk)
        except Exception:  # one that can't be stepped must not hold up the others
            log.exception("deployment %s could not be stepped", pk)
    return len(ids)


@transaction.atomic
def _tick(pk: UUID) -> None:
    rows = Deployment.objects.select_for_update(of=("self",), skip_locked=True).select_related("release", "agent")
    deployment = rows.filter(pk=pk, state__in=LIVE).first()
    if deployment is None:  # another tick has it, or it has just ended
        return
    rule = DeploymentRule.from_json(deployment.rule)
    if deployment.strategy == DeploymentStrategy.CANARY:
        found = _canary(deployment, rule)
    elif deployment.strategy == DeploymentStrategy.BLUE_GREEN and deployment.share == 1:
        found = _watched(deployment)
    else:
        if deployment.strategy == DeploymentStrategy.SHADOW and shadow_spent(deployment) >= rule.budget_micros:
            advance(deployment, note="Its budget is used up.")
        return
    if found is not None:
        roll_back(deployment, said(found), figures={"guardrail": found.guardrail, "e_value": min(found.e_value, 1e12)})
    elif deployment.state == DeploymentState.RUNNING and not waits_for(deployment, rule):
        advance(deployment)


def shadow_spent(deployment: Deployment) -> int:
    """What the answers of a shadow have cost, in micro-dollars."""
    found = ProductionTrace.objects.filter(deployment_id=deployment.pk, arm=ArmName.SHADOW)
    return int(found.aggregate(spent=Sum("cost_micros"))["spent"] or 0)


def waits_for(deployment: Deployment, rule: DeploymentRule) -> str:
    """What its next step by itself waits for; "" if it is due."""
    minutes = (timezone.now() - deployment.step_began_at) / timedelta(minutes=1)
    if deployment.strategy == DeploymentStrategy.CANARY:
        counted = deployment.observations.filter(new=True, at__gte=deployment.step_began_at).exclude(counted_at=None)
        return rule.waits_for(deployment.step, minutes=minutes, sessions=counted.count())
    if deployment.strategy == DeploymentStrategy.BLUE_GREEN and deployment.share == 1:
        return "" if minutes >= rule.watch_minutes else f"{rule.watch_minutes - minutes:.0f} more minutes of watching"
    return "you"


def said(alarm: Alarm) -> str:
    """An alarm in words."""
    error = f"error of at most {ALPHA:.0%} over all looks"
    return f"The new release {WORDS[alarm.guardrail]} than the current one ({error}; e-value {alarm.e_value:,.0f})."


def _canary(deployment: Deployment, rule: DeploymentRule) -> Alarm | None:
    """Takes in what was observed since, in the order in which it came."""
    stored = deployment.monitor
    monitor = Monitor.from_json(stored) if "evidence" in stored else Monitor()
    now = timezone.now()
    fresh = list(deployment.observations.filter(counted_at=None).order_by("id")[:BATCH])
    for one in fresh:
        monitor.add(
            CanarySession(
                one.new,
                one.share,
                1,
                failures=int(one.failed),
                safety=None if one.safety is None else min(one.safety, 1),
                cost=dollars(one.cost_micros),
                latency=one.duration_ms,
            )
        )
        if monitor.alarm() is not None:
            break
    paid = _paid(deployment, now - timedelta(minutes=rule.feedback_minutes))
    for one, reward in paid:
        if reward is not None:
            monitor.add(CanarySession(one.new, one.share, 1, failures=None, reward=reward))
    if fresh or paid:
        CanaryObservation.objects.filter(pk__in=[one.pk for one in fresh]).update(counted_at=now)
        CanaryObservation.objects.filter(pk__in=[one.pk for one, _ in paid]).update(reward_counted_at=now)
        look = [now.isoformat(timespec="seconds"), deployment.share, min(monitor.e_value, 1e12)]
        history = thinned([*stored.get("history", []), look])
        deployment.monitor = {**monitor.as_json(), "history": history}
        deployment.save(update_fields=["monitor"])
    return monitor.alarm()


def _paid(deployment: Deployment, before: Any) -> list[tuple[CanaryObservation, float | None]]:
    """Sessions that had time for feedback, with the reward that came of it."""
    due = list(deployment.observations.filter(reward_counted_at=None, at__lte=before).order_by("at", "id")[:BATCH])
    rewards = dict(ProductionTrace.objects.filter(pk__in=[one.trace_id for one in due]).values_list("pk", "reward"))
    return [(one, rewards.get(one.trace_id)) for one in due]


def _watched(deployment: Deployment) -> Alarm | None:
    """The release after a switch, against the rate at which the one before it failed."""
    rate = FixedRate.from_json(deployment.monitor["rate"]) if "rate" in deployment.monitor else _base(deployment)
    fresh = list(deployment.observations.filter(counted_at=None).order_by("id")[:BATCH])
    for one in fresh:
        rate.add(failed=one.failed)
        if rate.e_value >= 1 / ALPHA:
            break
    CanaryObservation.objects.filter(pk__in=[one.pk for one in fresh]).update(counted_at=timezone.now())
    deployment.monitor = {"rate": rate.as_json()}
    deployment.save(update_fields=["monitor"])
    return Alarm("failures", rate.e_value) if rate.e_value >= 1 / ALPHA else None


def _base(deployment: Deployment) -> FixedRate:
    before = ProductionTrace.objects.filter(agent_id=deployment.agent_id, release_id=deployment.previous_id)
    answered = list(before.exclude(arm=ArmName.SHADOW).order_by("-pk").values_list("status", flat=True)[:BASE])
    return FixedRate.above(sum(one != TraceStatus.OK for one in answered), len(answered))


def thinned(history: Iterable[Any]) -> list[Any]:
    """Every second look of the older half, where there are too many."""
    found = list(history)
    if len(found) <= HISTORY:
        return found
    half = len(found) // 2
    return found[:half:2] + found[half:]
