"""Rollouts as texts for reflection: actions, outcome, and the most instructive siblings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from agentcore_site.lib.texts import plain
from experiences.learning.lessons.guards import Shared, shared_by
from experiences.privacy import cut_short, redact
from experiences.rollouts.prompt_quoting import bounded
from experiences.rollouts.types import Scenario, Step, Trajectory, TrajectoryGroup

TOLERANCE: Final = 1e-6  # a group whose rewards differ by less has nothing to compare
STEP_CHARACTERS: Final = 600
ERROR_CHARACTERS: Final = 200
TASK_CHARACTERS: Final = 4_000
ANSWER_CHARACTERS: Final = 2_000
CRITIQUE_CHARACTERS: Final = 300
HEAD, TAIL = 2_500, 1_000  # characters of an attempt that are read


@dataclass(frozen=True, slots=True)
class Contrast:
    """The attempts at one query that did well, and those that did badly."""

    group: TrajectoryGroup
    winners: tuple[Trajectory, ...]
    losers: tuple[Trajectory, ...]

    @property
    def attempts(self) -> tuple[Trajectory, ...]:
        return (*self.winners, *self.losers)

    @property
    def spread(self) -> float:
        return spread(self.group)


def spread(group: TrajectoryGroup) -> float:
    """The standard deviation of the group's known rewards; 0 for fewer than two."""
    known = [trajectory.reward for trajectory in group.trajectories if math.isfinite(trajectory.reward)]
    return float(np.std(known)) if len(known) > 1 else 0.0


def contrast(group: TrajectoryGroup, each: int) -> Contrast | None:
    """The ``each`` best and worst attempts; None for a group without spread. The mean does not count: a group of equal
    halves has no spread, one of rewards 1 and 2 has. Attempts that broke off say more about the service than about the
    task, and are left out."""
    if spread(group) <= TOLERANCE:
        return None
    known = [trajectory for trajectory in group.trajectories if math.isfinite(trajectory.reward) and trajectory.steps]
    if len(known) < 2:
        return None
    mean = sum(trajectory.reward for trajectory in known) / len(known)
    ranked = sorted(known, key=lambda one: -one.reward)
    winners = tuple(trajectory for trajectory in ranked[:each] if trajectory.reward > mean + TOLERANCE)
    losers = tuple(trajectory for trajectory in ranked[::-1][:each] if trajectory.reward < mean - TOLERANCE)
    return Contrast(group, winners, losers) if winners and losers else None


def attempt_text(trajectory: Trajectory) -> str:
    """The steps of an attempt and its outcome. The right answer is left out: it must not get into a lesson."""
    lines = [_step(number, step) for number, step in enumerate(trajectory.steps, start=1)]
    verdict = "right" if trajectory.success else "wrong"
    if trajectory.truncated:
        verdict += ", and it ran out of steps"
    if trajectory.error:
        verdict += f", and it broke off: {cut_short(trajectory.error, ERROR_CHARACTERS)}"
    ending = f"Verdict: {verdict} (score {trajectory.outcome:.2f}, {len(trajectory.steps)} steps)."
    return f"{bounded(redact(plain(chr(10).join(lines))), HEAD, TAIL)}\n{redact(plain(ending))}"


def task_text(query: str) -> str:
    """The query as a model that learns may see it: without personal data, and bounded."""
    return redact(plain(query))[:TASK_CHARACTERS]


def answers_of(scenario: Scenario) -> tuple[str, ...]:
    """The texts that would give the query's answer away."""
    return tuple(dict.fromkeys(_texts(scenario.expected)))


def shared_texts(scenarios: Sequence[Scenario]) -> Shared:
    """Texts that many of a run's training queries share (``guards.shared_by``). Kept by the queries and answers: a job
    asks in each of its slices, and long queries take a second to read."""
    return _shared(tuple(one.query for one in scenarios), tuple(answers_of(one) for one in scenarios))


@lru_cache(maxsize=4)
def _shared(queries: tuple[str, ...], answers: tuple[tuple[str, ...], ...]) -> Shared:
    return shared_by(queries, answers)


def right_answer(scenario: Scenario) -> str:
    """The expected answer for a model that reflects; "" where none is stored."""
    if not answers_of(scenario):
        return ""
    return redact(plain(json.dumps(scenario.expected, ensure_ascii=False, default=str)))[:ANSWER_CHARACTERS]


def critique(trajectory: Trajectory) -> str:
    """The judges' reasons about an attempt (that of the environment and that of the reward); "" without any."""
    evidence = trajectory.evidence
    verdict = evidence.get("verdict")
    judges = (evidence.get("judge"), verdict.get("judge") if isinstance(verdict, Mapping) else None)
    reasons = [str(judge.get("reason") or "") for judge in judges if isinstance(judge, Mapping)]
    flat = " ".join(" ".join(dict.fromkeys(reasons)).split())
    return redact(plain(cut_short(flat, CRITIQUE_CHARACTERS)))


def name_of(trajectory: Trajectory) -> str:
    """iteration/query/rollout"""
    return "/".join(map(str, trajectory.key))


def relative_ranks(group: TrajectoryGroup) -> dict[str, float]:
    """Each attempt's rank within its group: 1 for the best, 0 for the worst, equal ones alike."""
    known = [trajectory for trajectory in group.trajectories if math.isfinite(trajectory.reward)]
    if len(known) < 2:
        return {}
    below = {name_of(trajectory): sum(other.reward < trajectory.reward for other in known) for trajectory in known}
    alike = {name_of(trajectory): sum(other.reward == trajectory.reward for other in known) - 1 for trajectory in known}
    return {name: (below[name] + alike[name] / 2) / (len(known) - 1) for name in below}


def tool_stats(trajectories: Sequence[Trajectory]) -> tuple[Mapping[str, Any], ...]:
    """Calls, tokens, milliseconds and dollars by tool; the model's own words count as "model"."""
    sums: dict[str, list[float]] = {}
    for step in (step for trajectory in trajectories for step in trajectory.steps):
        name = str(step.action.get("tool") or "model")
        entry = sums.setdefault(name, [0, 0, 0.0, 0])
        for at, value in enumerate((1, step.tokens, step.duration_ms, step.cost_micros)):
            entry[at] += value
    return tuple(
        {
            "tool": name,
            "calls": int(calls),
            "tokens": int(tokens),
            "latency_ms": round(latency / calls, 3),
            "cost_usd": round(micros / 1e6, 6),
        }
        for name, (calls, tokens, latency, micros) in sorted(sums.items())
    )


def _step(number: int, step: Step) -> str:
    action = step.action
    what = str(action.get("type") or "step")
    if tool := action.get("tool"):
        what = f"{what} {tool}({json.dumps(action.get('parameters') or {}, ensure_ascii=False, default=str)})"
    said = f" said: {action['text']}" if action.get("text") else ""
    result = step.result
    came = result.get("output") if result.get("success") else f"error: {result.get('error')}"
    return _cut(f"{number}. {what}{said}") + (f"\n   came back: {_cut(str(came))}" if came not in (None, "") else "")


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= STEP_CHARACTERS else f"{cut_short(flat, STEP_CHARACTERS)}…"


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, bool) or value is None:
        return []
    return [str(value)] if isinstance(value, str | int | float) else []
