"""Payloads of trajectories and their rewards, from rows of the outbox."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final

from django.db import connection

from agentcore_site.encryption.columns import opened
from agentcore_site.ids import derived
from agentcore_site.lib.key_errors import KeyUnavailable, Unopenable
from agentcore_site.lib.registry import UnknownName
from evaluation.events.leased import KEY_AWAY, NOT_RECORDED, LeasedEvent, Made, agents_of, loaded
from evaluation.events.models import PUBLISHED_PURPOSES, RECEIVED, ReceivedReward
from evaluation.events.payloads.reward import StoredReward, received_payload, reward_payload
from evaluation.events.payloads.reward_parts import account_of
from evaluation.events.payloads.trajectory import OUTSIDE, StoredTrajectory, trajectory_payload
from experiences.models import GroupRecord
from experiences.rollouts.call_notes import settings_of
from experiences.rollouts.rewards import part_weights
from training.models import TrainingRun
from training.trainer.setup import configured_reward

AS_RECEIVED: Final = "received, and published under its own id"
LIGHT: Final = "t.id, t.job_id, t.agent_id, t.iteration, t.scenario, t.purpose, t.reward, t.components, t.evidence"
WHOLE: Final = (
    ", t.query, t.steps, extract(epoch FROM t.created_at)::float8, t.duration_ms, t.model, t.tokens, t.cost_micros,"
    " t.policy_version"
)
FACTS: Final = ("domain", "complexity_score", "subordinate_profile")  # of a task, where its row names them


def _stored(rows: Sequence[LeasedEvent], columns: str) -> dict[uuid.UUID, tuple[Any, ...]]:
    """Rows by id, with JSON columns unparsed: this costs a fraction of Django's rows."""
    by_month: dict[date | None, list[uuid.UUID]] = defaultdict(list)
    for row in rows:
        by_month[row.month].append(row.key)
    found: dict[uuid.UUID, tuple[Any, ...]] = {}
    with connection.cursor() as cursor:
        for month, ids in by_month.items():
            cursor.execute(
                f"SELECT {columns} FROM experiences_trajectory t"  # noqa: S608  (columns are ours)
                " WHERE t.month = %s AND t.id = ANY(%s) AND t.purpose = ANY(%s)",
                [month, ids, list(PUBLISHED_PURPOSES)],
            )
            found |= {values[0]: values for values in cursor.fetchall()}
    return found


def trajectory_payloads(rows: Sequence[LeasedEvent]) -> Made:
    stored = _stored(rows, LIGHT + WHOLE)
    agents = agents_of(values[2] for values in stored.values())
    domains = _domains(values[1] for values in stored.values())
    for row in rows:
        if (values := stored.get(row.key)) is None or (agent := agents.get(values[2])) is None:
            continue
        if not agent[1]:
            yield row, NOT_RECORDED
            continue
        key, job, _, _, scenario, _, _, _, evidence, query, steps, at, duration, model, tokens, cost, version = values
        slug, noted = agent[0], loaded(evidence)
        try:
            played = opened("experiences_trajectory", "steps", row.organization_id, key, loaded(steps))
        except (KeyUnavailable, Unopenable) as error:
            yield row, KEY_AWAY if isinstance(error, KeyUnavailable) else error.title
            continue
        known = noted.get(OUTSIDE) or _facts(noted, played, domains.get(job), version)
        yield (
            row,
            trajectory_payload(
                StoredTrajectory(
                    str(key), str(job), slug, query, played, at, duration, model, tokens, cost, scenario, known
                )
            ),
        )


def _domains(jobs: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """The domain of each job's data."""
    runs = TrainingRun.objects.filter(job_id__in=set(jobs)).exclude(dataset=None).exclude(dataset__domain="")
    return dict(runs.values_list("job_id", "dataset__domain"))


def _facts(
    evidence: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], domain: str | None, version: str
) -> dict[str, Any]:
    """Facts about a rollout of ours: of its task, its model's settings and its policy."""
    found = {"domain": domain} | {name: evidence[name] for name in FACTS if name in evidence}
    return found | {"temperature": settings_of(steps).get("temperature"), "model_version": version or None}


def reward_payloads(rows: Sequence[LeasedEvent]) -> Made:
    stored = _stored(rows, LIGHT)
    agents = agents_of(values[2] for values in stored.values())
    groups = _groups({(values[1], values[3], values[4]) for values in stored.values()})
    received = _received(rows)
    applied = _applied(stored)
    for row in rows:
        if (values := stored.get(row.key)) is None or (agent := agents.get(values[2])) is None:
            continue
        key, job, _, iteration, scenario, purpose, reward, components, evidence = values
        if not agent[1]:
            yield row, NOT_RECORDED
        elif name := row.data.get("received"):
            if (one := received.get(uuid.UUID(name))) is not None:
                yield row, received_payload(one.reward_id, one.trajectory_id, one.total, one.components, one.about)
        elif (key, reward) in applied:
            yield row, AS_RECEIVED
        elif reward is not None:
            parts, noted = loaded(components), loaded(evidence)
            account = account_of(parts, noted, _weights(job) if purpose != RECEIVED else {})
            outside = noted.get(OUTSIDE) or {}
            reward_row = StoredReward(
                # The id is of the row and the payment: a duplicate of the same payment is one event.
                str(derived(key, "reward", reward)),
                outside.get("trajectory_id", str(key)),
                outside.get("session_id", str(job)),
                row.created_at,
                reward,
                account.parts,
                any(value for name, value in parts.items() if name != "outcome" and isinstance(value, int | float)),
                account.confidence,
                groups.get((job, iteration, scenario)),
                account.trailing,
            )
            yield row, reward_payload(reward_row)


def _received(rows: Sequence[LeasedEvent]) -> dict[uuid.UUID, ReceivedReward]:
    """Received rewards that these rows name, by id."""
    named = {row.data["received"] for row in rows if "received" in row.data}
    return ReceivedReward.objects.in_bulk(named) if named else {}


def _applied(stored: Mapping[uuid.UUID, tuple[Any, ...]]) -> set[tuple[uuid.UUID | None, float]]:
    """Trajectories with the reward that others paid them. A rollout of ours that they paid has no components."""
    paid = [id for id, values in stored.items() if values[5] == RECEIVED or values[7] in ("{}", {})]
    rows = ReceivedReward.objects.filter(record_id__in=paid, applied=True)
    return set(rows.values_list("record_id", "total")) if paid else set()


@lru_cache(maxsize=1_024)
def _weights(job: uuid.UUID) -> Mapping[str, float]:
    """The weights of the parts of a job's reward, which stay as they are; {} where it names none."""
    run = TrainingRun.objects.filter(job_id=job).only("job_id", "config").first()
    if run is None:
        return {}
    try:
        return part_weights(configured_reward(run.configuration))
    except (UnknownName, ValueError):  # the package that brought it is not installed any more
        return {}


def _groups(
    wanted: set[tuple[uuid.UUID, int, int]],
) -> dict[tuple[uuid.UUID, int, int], tuple[float, float]]:
    """Mean and deviation of the rewards of groups that are complete."""
    rows = GroupRecord.objects.filter(job_id__in={key[0] for key in wanted}, iteration__in={key[1] for key in wanted})
    found = {}
    for job, iteration, scenario, rewards in rows.values_list("job_id", "iteration", "scenario", "rewards"):
        paid = [reward for reward in rewards if reward is not None]
        if paid and (job, iteration, scenario) in wanted:
            mean = sum(paid) / len(paid)
            deviation = (sum((one - mean) ** 2 for one in paid) / len(paid)) ** 0.5
            found[(job, iteration, scenario)] = (mean, deviation)
    return found
