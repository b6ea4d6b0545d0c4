"""The reward of answers in production: the composite of ``experiences.rollouts.rewards``, over the agent's last 1,000.

Rows become the trajectories and the memory that the reward reads in training, so there is one formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from django.db import transaction
from django.db.models import F, QuerySet

from evaluation.serving.feedback.opinions import Opinion, evidence, success
from evaluation.serving.models import ArmName, Feedback, ProductionTrace, TraceStatus
from experiences.models import Agent
from experiences.rollouts.rewards import pay, rewards, signals
from experiences.rollouts.rewards.composite import WEIGHTS, WINDOW, CompositeReward
from experiences.rollouts.rewards.effort import efforts
from experiences.rollouts.types import RolloutKey, Step, Trajectory

NAME: Final = "composite"
SCORED: Final = (TraceStatus.OK, TraceStatus.FAILED)  # not what a budget refused, or a process that ended left open
CUT: Final = 0.5  # the completion of an answer that ended at its limit of tokens


def scorable() -> QuerySet[ProductionTrace]:
    """Answers that users saw, or should have seen."""
    return ProductionTrace.objects.filter(agent__isnull=False, status__in=SCORED).exclude(arm=ArmName.SHADOW)


def traces_score(ids: Iterable[Any], codes: Mapping[Any, Any] | None = None) -> int:
    """Computes the rewards of traces again; those of one agent on the same scale, which their own values don't move.
    Returns their number.

    ``codes``: what was found of the code in their answers, by id; without it, what was found before stays.
    """
    with transaction.atomic():
        # One after the other: who gives feedback at the same moment waits, and is counted.
        rows = scorable().filter(pk__in=list(ids)).select_related("agent").defer("request", "response")
        found = list(rows.select_for_update(of=("self",), no_key=True).order_by("agent_id", "id"))
        opinions = _opinions(found)
        for _, group in groupby(found, key=lambda row: row.agent_id):
            _score(list(group), opinions, codes or {})
        ProductionTrace.objects.bulk_update(found, ["reward", "components"], batch_size=200)
    return len(found)


def trace_rescore(trace_id: Any) -> None:
    """Computes the reward again, in the transaction of the feedback; a trace without a reward is left to the sweep."""
    # Locked before it is looked at: a sweep that is at it right now has not read what was just said.
    row = ProductionTrace.objects.select_for_update(no_key=True).only("reward").get(pk=trace_id)
    if row.reward is not None:
        traces_score([trace_id])


def _score(rows: Sequence[ProductionTrace], opinions: Mapping[Any, list[Opinion]], codes: Mapping[Any, Any]) -> None:
    agent = rows[0].agent
    assert agent is not None
    reward = composite_of(agent)
    reward.load_state_dict(_memory(agent, rows[0], reward.window))
    for row in rows:
        code = codes[row.pk] if row.pk in codes else row.components.get(signals.CODE_QUALITY)
        trajectory = _trajectory(row, opinions.get(row.pk, []), code)
        pay(reward, trajectory)
        stored = trajectory.evidence["reward"]
        raw = [reward.weights[name] * value for name, value in stored["raw"].items() if value is not None]
        row.reward = trajectory.reward
        row.components = {
            **{name: stored[name] for name in ("raw", "normalised", "weights", "observed", "measured", "usual")},
            "parts": trajectory.components,
            "raw_reward": math.fsum(raw),
            "efforts": efforts(trajectory),
            "feedback": trajectory.evidence.get("feedback", {}),
            signals.CODE_QUALITY: code,
        }


def share_earned(raw: Mapping[str, float | None] | None, weights: Mapping[str, float] | None) -> float | None:
    """The earned share of the possible reward, by all known components, from 0 to 1; None if none is known."""
    parts = [(weights[name], value) for name, value in (raw or {}).items() if value is not None] if weights else []
    whole = math.fsum(weight for weight, _ in parts)
    return min(1.0, max(0.0, math.fsum(weight * value for weight, value in parts) / whole)) if whole > 0 else None


def composite_of(agent: Agent) -> CompositeReward:
    """By the agent's own options where its jobs are paid by the composite too, else as it is by default."""
    made = rewards.get(NAME)(agent.reward_options if agent.reward == NAME else {})
    assert isinstance(made, CompositeReward)
    return made


def _opinions(rows: Sequence[ProductionTrace]) -> dict[Any, list[Opinion]]:
    given = Feedback.objects.filter(trace__in=rows).values_list("trace_id", "metric", "value")
    found: dict[Any, list[Opinion]] = {}
    for trace_id, metric, value in given:
        found.setdefault(trace_id, []).append(Opinion(metric, value))
    return found


def _trajectory(row: ProductionTrace, opinions: Sequence[Opinion], code: Any) -> Trajectory:
    """A call as a rollout of one step."""
    known: dict[str, Any] = {"task_type": _task_type(row.metadata)}
    if opinion_evidence := evidence(opinions):
        known["feedback"] = opinion_evidence
    if code:
        known[signals.CODE_QUALITY] = code
    tokens = row.input_tokens + row.output_tokens
    step = Step({}, {"type": "answer"}, {}, duration_ms=row.duration_ms, tokens=tokens, cost_micros=row.cost_micros)
    outcome = _completion(row, opinions)
    return Trajectory(RolloutKey(0, 0, 0), "", [step], outcome == 1, outcome, evidence=known, model=row.model or "-")


def _completion(row: ProductionTrace, opinions: Sequence[Opinion]) -> float:
    """The users' opinion on success, else the form of the answer's end: whole 1, cut .5, none 0."""
    if (succeeded := success(opinions)) is not None:
        return succeeded
    if row.status != TraceStatus.OK:
        return 0.0
    return CUT if row.finish_reason == "length" else 1.0


def _task_type(metadata: Any) -> str:
    return signals.task_type(metadata) if isinstance(metadata, Mapping) else ""


def _memory(agent: Agent, before: ProductionTrace, window: int = WINDOW) -> dict[str, Any]:
    """The composite's memory of the agent's last ``window`` scored answers before this one."""
    earlier = scorable().filter(agent=agent, id__lt=before.pk, reward__isnull=False).order_by("-id")
    columns = (F("components__raw"), F("components__efforts"), F("metadata__task_type"))
    rows = list(earlier.values_list(*columns)[:window])[::-1]
    seen = {name: [raw[name] for raw, _, _ in rows if raw.get(name) is not None] for name in WEIGHTS}
    types: dict[str, list[Mapping[str, float]]] = {}
    for _, effort, kind in rows:
        types.setdefault(_task_type({"task_type": kind}), []).append(effort)
    state: dict[str, Any] = {f"seen/{name}": np.array(values, float) for name, values in seen.items()}
    state["types"] = list(types)
    for name in {name for efforts_ in types.values() for one in efforts_ for name in one}:
        parts = [[one[name] for one in efforts_] for efforts_ in types.values()]
        state[f"lengths/{name}"] = [len(part) for part in parts]
        state[f"usual/{name}"] = np.array([value for part in parts for value in part], float)
    return state
