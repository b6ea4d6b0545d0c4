"""Receivers of each subject's payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db import connection

from agentcore_site.lib.feedback_metrics import PROFILES, trajectory_collected
from agentcore_site.lib.statistics import finite_or_none
from agentcore_site.lib.texts import uuid_of
from evaluation.events.intake.messages import MessageStamp, NotTaken, Sender, receives
from evaluation.events.models import DeadReason, EventPublisher, ReceivedReward, ReceivedTrajectory
from evaluation.events.payloads.trajectory import OUTSIDE, trajectory_read
from evaluation.events.received import SCENARIOS, received_scope, timed
from evaluation.events.subjects import REQUEST, REWARD, STATUS, TRAJECTORY
from evaluation.events.training import acting_for, status_take, training_request
from experiences.agents.consent import consent_withdrawn
from experiences.models import Agent, TrajectoryRecord
from experiences.privacy import redact_value
from experiences.rollouts.types import Trajectory
from experiences.trajectories.storage import partition_ensure, trajectories_write

GENERAL: Final = "general"  # the label of a trajectory that names no domain
OWN: Final = ("reward_id", "trajectory_id", "total_reward", "reward_components")  # columns of a received reward


@receives(TRAJECTORY)
def trajectory_receive(sender: Sender, payload: Mapping[str, Any], stamp: MessageStamp) -> None:
    agent = _agent(sender, payload["agent_id"])
    name = payload["trajectory_id"]
    received, new = ReceivedTrajectory.objects.get_or_create(
        organization=sender.organization,
        trajectory_id=name,
        defaults={"agent": agent, "credential_id": sender.credential_id, **stamp._asdict()},
    )
    if not new:
        _same(received.digest, stamp.digest, f"trajectory {name}")
        return
    try:
        trajectory = timed(trajectory_read(payload, scenario=received.pk % SCENARIOS), received.received_at)
    except (ValueError, OSError) as error:
        raise NotTaken(DeadReason.SCHEMA, str(error)) from error
    scope = received_scope(agent)
    waiting = ReceivedReward.objects.filter(
        organization=sender.organization, trajectory_id=name, record_id=None
    ).order_by("id")
    if (first := waiting.first()) is not None:  # the reward came before its trajectory
        _pay(trajectory, first)
        first.applied = True
        first.save(update_fields=["applied"])
    partition_ensure(scope.month)
    trajectories_write(scope, [trajectory])
    trajectory_collected(
        profile if (profile := payload.get("subordinate_profile")) in PROFILES else "main",
        trajectory.evidence[OUTSIDE]["domain"] or GENERAL,
        turns=len(trajectory.steps),
        reward=finite_or_none(trajectory.reward),
    )
    received.record_id, received.month = scope.id_of(trajectory.key), scope.month
    received.save(update_fields=["record_id", "month"])
    waiting.update(record_id=received.record_id)


@receives(REWARD)
def reward_receive(sender: Sender, payload: Mapping[str, Any], stamp: MessageStamp) -> None:
    name = payload["trajectory_id"]
    record, agent = _rewarded(sender, name)
    if agent is not None:
        _may(sender, agent)
    row, new = ReceivedReward.objects.get_or_create(
        organization=sender.organization,
        reward_id=payload["reward_id"],
        defaults={
            "trajectory_id": name,
            "credential_id": sender.credential_id,
            **stamp._asdict(),
            "total": float(payload["total_reward"]),
            "components": redact_value(payload.get("reward_components") or {}),
            "about": redact_value({key: value for key, value in payload.items() if key not in OWN}),
            "record_id": record,
        },
    )
    if not new:
        _same(row.digest, stamp.digest, f"reward {payload['reward_id']}")
    elif record is not None:
        row.applied = _paid(record, row.total)
        row.save(update_fields=["applied"])


@receives(REQUEST)
def request_receive(sender: Sender, payload: Mapping[str, Any], stamp: MessageStamp) -> None:
    """Acts as the person who made the publisher, with that person's rights only."""
    credential = sender.credential
    if credential is None:
        switch = EventPublisher.objects.select_related("created_by").filter(pk=sender.organization.pk).first()
        user = None if switch is None else switch.created_by
    else:
        user = credential.created_by
        if credential.agent is not None:
            named = (payload.get("metadata") or {}).get("agent_id", credential.agent.slug)
            if named != credential.agent.slug:
                raise NotTaken(DeadReason.WRONG_AGENT, f"{credential.name} may not ask for {named}.")
            payload = {**payload, "metadata": {**(payload.get("metadata") or {}), "agent_id": named}}
    if user is None:
        raise NotTaken(DeadReason.UNKNOWN_PUBLISHER, "The person who made this publisher is gone.")
    training_request(acting_for(user, sender.organization), payload, **stamp._asdict())


@receives(STATUS)
def status_receive(sender: Sender, payload: Mapping[str, Any], stamp: MessageStamp) -> None:
    try:
        status_take(sender.organization, payload)
    except ValueError as error:
        raise NotTaken(DeadReason.SCHEMA, str(error)) from error


def _agent(sender: Sender, slug: str) -> Agent:
    if slug not in sender.agents:
        mine = Agent.objects.filter(organization=sender.organization, slug=slug, archived_at=None)
        sender.agents[slug] = agent = mine.first()
        if agent is not None:
            agent.collects = not consent_withdrawn([str(agent.pk)])  # and stays so until the block ends
    agent = sender.agents[slug]
    if agent is None:
        raise NotTaken(DeadReason.UNKNOWN_AGENT, f"No agent {slug} is registered.")
    _may(sender, agent)
    if not agent.collects:
        raise NotTaken(DeadReason.NOT_RECORDED, f"{agent.name} may not be recorded.", keep=False)
    return agent


def _may(sender: Sender, agent: Agent) -> None:
    credential = sender.credential
    if credential is not None and credential.agent_id is not None and credential.agent_id != agent.pk:
        raise NotTaken(DeadReason.WRONG_AGENT, f"{credential.name} may not publish for {agent.slug}.")


def _same(before: str, now: str, what: str) -> None:
    """A duplicate is accepted once; other content under the same id is refused."""
    if before != now:
        raise NotTaken(DeadReason.CONFLICT, f"{what} was received with other content.")


def _pay(trajectory: Trajectory, reward: ReceivedReward) -> None:
    trajectory.reward = reward.total
    trajectory.components = {
        name: float(part["score"])
        for name, part in reward.components.items()
        if isinstance(part.get("score"), int | float)
    }


def _rewarded(sender: Sender, name: str) -> tuple[UUID | None, Agent | None]:
    """The row of a reward's trajectory, and its agent; None if the trajectory has not arrived yet."""
    known = ReceivedTrajectory.objects.select_related("agent").filter(
        organization=sender.organization, trajectory_id=name
    )
    if (received := known.first()) is not None:
        return received.record_id, received.agent
    ours = TrajectoryRecord.objects.filter(organization_id=sender.organization.pk, id=uuid_of(name))
    if uuid_of(name) is None or (row := ours.values("id", "agent_id").first()) is None:
        return None, None
    return row["id"], Agent.objects.filter(pk=row["agent_id"]).first()


def _paid(record: UUID, total: float) -> bool:
    """Whether the row had no reward, and has this one now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE experiences_trajectory SET reward = %s WHERE id = %s AND reward IS NULL", [total, record]
        )
        return cursor.rowcount == 1
