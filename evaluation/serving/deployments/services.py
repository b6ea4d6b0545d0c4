"""Writes of deployments. Only this module changes the served release; timeline and audit log have each step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid
from agentcore_site.lib.feedback_metrics import model_deployments
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.row_checks import hold_row
from agentcore_site.lib.texts import uuid_of
from agentcore_site.notices.events import event_record
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.mails import mail_queue
from agentcore_site.tenancy.members import who_may
from agentcore_site.tenancy.permissions import require
from evaluation.serving.adapters.outbox import plan_queue
from evaluation.serving.deployments.gate import rule_stored, verdict_of
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.deployments.strategies import strategy_fault
from evaluation.serving.gate.verdict import GateRule, GateVerdict
from evaluation.serving.models import (
    LIVE,
    AgentServing,
    Deployment,
    DeploymentEvent,
    DeploymentState,
    DeploymentStrategy,
    Release,
    ReleaseApproval,
)
from experiences.models import Agent, ModelEndpoint
from experiences.playbooks.invalidation import announce_on_commit

log = logging.getLogger(__name__)
MOST_TEXT: Final = 300
CHANGES: Final = frozenset({"started", "advanced", "rolled_back", "done"})  # of the releases that serve the agent
# Steps that people and webhooks are notified of: the type of the event, and its words.
NOTIFIED: Final = {
    "started": ("deployment.started", "is being deployed"),
    "done": ("deployment.promoted", "serves it now"),
    "rolled_back": ("deployment.rolled_back", "was rolled back"),
}
STRATEGIES: Final = (
    DeploymentStrategy.CANARY,
    DeploymentStrategy.BLUE_GREEN,
    DeploymentStrategy.IMMEDIATE,
)  # that serve


@transaction.atomic
def deployment_start(
    actor: Actor,
    release: Release,
    *,
    strategy: str,
    rule: DeploymentRule | None = None,
    note: str = "",
    override: str = "",
) -> Deployment:
    """Starts the deployment of a release. ``override``: the reason to deploy although the gate refuses.

    Raises:
        Missing, Forbidden: the actor may not, or may not override the gate.
        Invalid: no such strategy; nothing to compare with; a text is too long (``fields``).
        Conflict: the gate refuses; the release serves already; another deployment is live; the agent is archived.
    """
    _check_texts(note=note, override=override)
    serving = _serving(actor, release)
    if why := strategy_fault(strategy, release, serving):
        raise Invalid(why, fields={"strategy": why})
    verdict = verdict_of(release, serving.release)
    if not verdict.passed:
        _check_override(actor, release.agent, verdict, override)
    shown = verdict.as_json()
    deployment = _begin(
        actor, release, serving, strategy=strategy, rule=rule or DeploymentRule(), note=note, verdict=shown
    )
    if not verdict.passed:
        _log_event(actor, deployment, "overridden", note=override.strip(), figures={"verdict": verdict.sentence})
    return deployment


@transaction.atomic
def release_approve(actor: Actor, release: Release) -> None:
    """Raises:
    Missing, Forbidden: the actor may not.
    Conflict: the actor made this release."""
    require(actor, "deployment.edit", release.organization_id)
    user = Actor.of(actor).user
    if release.created_by_id == user.pk:
        raise Conflict("You made this release: another person has to approve it.")
    _, made = ReleaseApproval.objects.get_or_create(release=release, by=user)
    if made:
        record(actor, "release.approved", release, organization=release.organization_id)


@transaction.atomic
def release_restore(actor: Actor, agent: Agent, *, note: str = "") -> Deployment:
    """Serves the release before the current one again, at once. The gate is not applied: it passed that release before.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: there is no release before, or a deployment is live.
    """
    _check_texts(note=note)
    require(actor, "deployment.edit", agent.organization_id)
    last = Deployment.objects.filter(agent=agent, state=DeploymentState.DONE).select_related("previous").first()
    if last is None or last.previous is None:
        raise Conflict(f"{agent.name} has no release to go back to.")
    serving = _serving(actor, last.previous)
    note = note or f"Back from release {last.release.number}."
    immediate, rule = DeploymentStrategy.IMMEDIATE, DeploymentRule()
    return _begin(actor, last.previous, serving, strategy=immediate, rule=rule, note=note, verdict={})


def _serving(actor: Actor, release: Release) -> AgentServing:
    """The serving settings of the release's agent, locked until the transaction ends.
    Raises Missing, Forbidden, Conflict."""
    agent = release.agent
    require(actor, "deployment.edit", agent.organization_id)
    hold_row(agent)
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    serving, _ = AgentServing.objects.get_or_create(agent=agent, defaults={"organization_id": agent.organization_id})
    if serving.release_id == release.pk:
        raise Conflict(f"Release {release.number} serves {agent.name} already.")
    if live := Deployment.objects.filter(agent=agent, state__in=LIVE).select_related("release").first():
        raise Conflict(f"Release {live.release.number} is on its way. Let it end, or roll it back.")
    return serving


def _begin(
    actor: Actor,
    release: Release,
    serving: AgentServing,
    *,  # the fields of the row
    strategy: str,
    rule: DeploymentRule,
    note: str,
    verdict: dict[str, Any],
) -> Deployment:
    now = timezone.now()
    immediate = strategy == DeploymentStrategy.IMMEDIATE
    share = 1.0 if immediate else 0.0 if strategy == DeploymentStrategy.BLUE_GREEN else rule.stages[0].share
    deployment = Deployment.objects.create(
        organization_id=release.organization_id,
        agent=release.agent,
        release=release,
        previous=serving.release,
        strategy=strategy,
        state=DeploymentState.DONE if immediate else DeploymentState.RUNNING,
        share=share,
        step_began_at=now,
        rule=rule.as_json(),
        verdict=verdict,
        note=note.strip(),
        created_by=Actor.of(actor).user,
        ended_at=now if immediate else None,
    )
    _log_event(actor, deployment, "started", note=note.strip())
    if immediate:
        serve(deployment)
        _log_event(actor, deployment, "done")
    return deployment


@transaction.atomic
def serving_change(
    actor: Actor,
    agent: Agent,
    *,
    fallbacks: Sequence[str],
    while_away_usd: float,
    gate: GateRule,
    webhook_url: str = "",
) -> AgentServing:
    """Changes an agent's fallbacks, its spending while the database is unavailable, its gate and its webhook. A new
    webhook address is called at once.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: an endpoint is not the organisation's, or this site refuses to call the address.
    """
    require(actor, "deployment.edit", agent.organization_id)
    hold_row(agent)
    known = ModelEndpoint.objects.filter(organization_id=agent.organization_id, archived_at=None)
    ids = [one for name in fallbacks if (one := uuid_of(name)) is not None]
    if len(known.filter(pk__in=ids)) < len(set(fallbacks)):
        raise Invalid("Choose endpoints of the list.", fields={"fallbacks": "Choose endpoints of the list."})
    serving, _ = AgentServing.objects.get_or_create(agent=agent, defaults={"organization_id": agent.organization_id})
    check_address("webhook_url", webhook_url, before=serving.webhook_url)
    before = {
        "webhook_url": serving.webhook_url,
        "fallbacks": [str(fallback) for fallback in serving.fallbacks],
        "while_away_usd": dollars(serving.while_away_micros),
    }
    serving.fallbacks, serving.while_away_micros = ids, micros(while_away_usd)
    before["gate"], serving.gate = serving.gate, rule_stored(gate)
    serving.webhook_url = webhook_url
    serving.save(update_fields=["fallbacks", "while_away_micros", "gate", "webhook_url", "updated_at"])
    last = Deployment.objects.filter(agent=agent).exclude(strategy=DeploymentStrategy.SHADOW).first()
    if last is not None and webhook_url != before["webhook_url"]:
        plan_queue(last)
    after = {
        "webhook_url": webhook_url,
        "fallbacks": [str(one) for one in ids],
        "while_away_usd": while_away_usd,
        "gate": serving.gate,
    }
    record(actor, "serving.changed", serving, organization=agent.organization_id, before=before, after=after)
    return serving


def deployment_pause(actor: Actor, deployment: Deployment, *, note: str = "") -> None:
    """Keeps the share until the deployment is resumed; guardrails stay active and may roll it back.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it is not running.
    """
    _step(actor, deployment, "paused", DeploymentState.RUNNING, note=note, state=DeploymentState.PAUSED)


def deployment_resume(actor: Actor, deployment: Deployment, *, note: str = "") -> None:
    """Raises:
    Missing, Forbidden: the actor may not.
    Conflict: it is not paused."""
    _step(actor, deployment, "resumed", DeploymentState.PAUSED, note=note, state=DeploymentState.RUNNING)


@transaction.atomic
def deployment_advance(actor: Actor, deployment: Deployment, *, note: str = "") -> None:
    """Takes the next step now, without waiting: a canary's next stage, blue-green's switch, or the end.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it has ended.
    """
    found = _locked(actor, deployment)
    advance(found, actor=actor, note=note)


@transaction.atomic
def deployment_roll_back(actor: Actor, deployment: Deployment, *, note: str = "") -> None:
    """Rolls the new release back at once.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: it has ended.
    """
    found = _locked(actor, deployment)
    roll_back(found, note.strip() or "by hand", actor=actor)


# -- steps that a person or the rule takes; the caller has locked the row ----------------------------------------------


def advance(deployment: Deployment, *, actor: Actor | None = None, note: str = "") -> None:
    rule = DeploymentRule.from_json(deployment.rule)
    if deployment.strategy == DeploymentStrategy.BLUE_GREEN:
        follows = 1.0 if deployment.share < 1 else None
    elif deployment.strategy == DeploymentStrategy.CANARY:
        follows = rule.stages[deployment.step + 1].share if deployment.step + 1 < len(rule.stages) else None
    else:
        follows = None
    if follows is None:
        _complete(deployment, actor, note)
        return
    deployment.step += 1
    deployment.share, deployment.step_began_at, deployment.asked_at = follows, timezone.now(), None
    deployment.save(update_fields=["step", "share", "step_began_at", "asked_at"])
    _log_event(actor, deployment, "advanced", note=note)


def person_ask(deployment: Deployment, why: str) -> None:
    """Records once that a stage waits for a person, and mails the people who may decide."""
    deployment.asked_at = timezone.now()
    deployment.save(update_fields=["asked_at"])
    _log_event(None, deployment, "asked", note=why)
    subject = f"{deployment.agent.name}: release {deployment.release.number} waits for you"
    body = f"{why}\n\nAdvance it or roll it back on its page: /deployments/{deployment.pk}/\n"
    to = [one.email for one in who_may(deployment.organization_id, "deployment.edit")]
    mail_queue(deployment.organization, to=to, subject=subject, body=body, blind=True)


def roll_back(deployment: Deployment, reason: str, *, actor: Actor | None = None, figures: Any = None) -> None:
    deployment.state, deployment.share, deployment.reason = DeploymentState.ROLLED_BACK, 0.0, reason[:MOST_TEXT]
    deployment.ended_at = timezone.now()
    deployment.save(update_fields=["state", "share", "reason", "ended_at"])
    _log_event(actor, deployment, "rolled_back", note=reason[:MOST_TEXT], figures=figures)


def serve(deployment: Deployment) -> None:
    """Makes the release the one that serves the agent."""
    AgentServing.objects.filter(agent_id=deployment.agent_id).update(
        release=deployment.release, updated_at=timezone.now()
    )
    announce_on_commit(deployment.agent_id)


def _complete(deployment: Deployment, actor: Actor | None, note: str) -> None:
    shadow = deployment.strategy == DeploymentStrategy.SHADOW
    deployment.state = DeploymentState.STOPPED if shadow else DeploymentState.DONE
    deployment.share = 0.0 if shadow else 1.0
    deployment.ended_at = timezone.now()
    deployment.save(update_fields=["state", "share", "ended_at"])
    if not shadow:
        serve(deployment)
    _log_event(actor, deployment, "stopped" if shadow else "done", note=note)


def _step(actor: Actor, deployment: Deployment, kind: str, expected: str, *, note: str, state: str) -> None:
    with transaction.atomic():
        found = _locked(actor, deployment)
        if found.state != expected:
            raise Conflict(f"This deployment is {found.get_state_display().lower()}.")
        found.state = state
        found.save(update_fields=["state"])
        _log_event(actor, found, kind, note=note)


def _locked(actor: Actor, deployment: Deployment) -> Deployment:
    """The current row, locked until the transaction ends. Raises Missing, Forbidden, Conflict."""
    require(actor, "deployment.edit", deployment.organization_id)
    found = (
        Deployment.objects.select_for_update(of=("self",), no_key=True)
        .select_related("release", "agent")
        .get(pk=deployment.pk)
    )
    if not found.live:
        raise Conflict(f"This deployment has ended: {found.get_state_display().lower()}.")
    return found


def _log_event(actor: Actor | None, deployment: Deployment, kind: str, *, note: str = "", figures: Any = None) -> None:
    user = None if actor is None else Actor.of(actor).user
    DeploymentEvent.objects.create(
        deployment=deployment, kind=kind, share=deployment.share, by=user, note=note[:MOST_TEXT], figures=figures or {}
    )
    ids = {"deployment_id": deployment.pk, "agent_id": deployment.agent_id, "release_id": deployment.release_id}
    extra = ids | {"organization_id": deployment.organization_id, "event": kind, "share": deployment.share}
    transaction.on_commit(lambda: log.info("deployment %s", kind, extra=extra), robust=True)
    if kind in CHANGES and deployment.strategy != DeploymentStrategy.SHADOW:
        plan_queue(deployment)
        model_deployments.labels(status=kind).inc()
    _notify(deployment, kind, note=note)
    after = {"release": deployment.release.number, "share": deployment.share, "note": note[:MOST_TEXT]}
    record(actor, f"deployment.{kind}", deployment, organization=deployment.organization_id, after=after)


def _notify(deployment: Deployment, kind: str, *, note: str) -> None:
    """Notifies people and webhooks of a change of the serving release."""
    notified = NOTIFIED.get(kind)
    if notified is None:
        return
    type, text = notified
    agent, number = deployment.agent, deployment.release.number
    event_record(
        deployment.organization_id,
        type,
        text=f"{agent.name}: release {number} {text}." + (f" {note}" if note else ""),
        data={
            "deployment_id": str(deployment.pk),
            "agent": agent.slug,
            "release": number,
            "strategy": deployment.strategy,
            "share": deployment.share,
            "note": note[:300],
        },
        path=reverse("serving:deployment", args=[deployment.pk]),
        agent_id=deployment.agent_id,
        owner=deployment.created_by,
    )


def _check_texts(**texts: str) -> None:
    for name, text in texts.items():
        if len(text) > MOST_TEXT:
            message = f"It has at most {MOST_TEXT} characters; this one has {len(text)}."
            raise Invalid(f"{name}: {message}", fields={name: message})


def _check_override(actor: Actor, agent: Agent, verdict: GateVerdict, override: str) -> None:
    if not override.strip():
        raise Conflict(f"The gate refuses. {verdict.sentence}")
    if not Actor.of(actor).may("deployment.override", agent.organization_id):
        raise Forbidden(f"Only an admin may override the gate, which refuses. {verdict.sentence}")
