"""``agent.rl.trajectory.v1`` from a stored rollout, and a rollout from a received payload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from evaluation.events.payloads.timestamps import read, seconds_written
from experiences.rollouts.types import RolloutKey, Step, Trajectory

OUTSIDE: Final = "event"  # the key in a trajectory's evidence for values without a column
MOST_STEPS: Final = 32_767  # of a row
OBSERVED: Final = ("user_message", "tool_result")
THINKING: Final = ("think", "plan", "verify")  # types of actions that touch nothing
# Names of the schema for the payload itself, its task and its metadata. Other values that came are kept beside them.
NAMED: Final = {
    "": (
        *("trajectory_id", "session_id", "agent_id", "subordinate_profile", "start_timestamp", "end_timestamp"),
        *("turns", "task_context", "metadata"),
    ),
    "task_context": ("task_id", "instructions", "complexity_score", "domain"),
    "metadata": ("model", "temperature", "total_tokens", "total_cost_usd"),
}


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """A row's values. ``started_at`` in seconds since the epoch; ``steps`` as stored; ``outside``: the additional
    values of a received trajectory, or of what is known of one of ours (``temperature``, ``domain`` …)."""

    id: str
    session: str
    agent: str
    query: str
    steps: Sequence[Mapping[str, Any]]
    started_at: float
    duration_ms: float
    model: str
    tokens: int
    cost_micros: int
    scenario: int
    outside: Mapping[str, Any]


def trajectory_payload(row: StoredTrajectory) -> dict[str, Any]:
    known, began = row.outside, row.started_at
    more = known.get("more") or {}
    return {
        **more.get("", {}),
        "trajectory_id": known.get("trajectory_id", row.id),
        "session_id": known.get("session_id", row.session),
        "agent_id": row.agent,
        "subordinate_profile": known.get("subordinate_profile"),
        "start_timestamp": seconds_written(began),
        "end_timestamp": seconds_written(began + row.duration_ms / 1e3),
        "turns": _turns(row),
        "task_context": {
            "task_id": known.get("task_id", str(row.scenario)),
            "instructions": row.query,
            "complexity_score": known.get("complexity_score"),
            "domain": known.get("domain"),
            **more.get("task_context", {}),
        },
        "metadata": {
            "model": row.model,
            "temperature": known.get("temperature"),
            "total_tokens": row.tokens,
            "total_cost_usd": row.cost_micros / 1e6,
            **({"model_version": known["model_version"]} if "model_version" in known else {}),
            **more.get("metadata", {}),
        },
    }


def _turns(row: StoredTrajectory) -> list[dict[str, Any]]:
    """At least one turn: a rollout that failed before its first step still received its query."""
    if row.steps:
        return [_turn(number, step, row.query) for number, step in enumerate(row.steps, 1)]
    return [
        {
            "turn_id": 1,
            "timestamp": seconds_written(row.started_at),
            "observation": {"type": OBSERVED[0], "content": row.query},
            "action": {"type": "response"},
        }
    ]


def _turn(number: int, step: Mapping[str, Any], query: str) -> dict[str, Any]:
    state, action, result = step["state"], step["action"], step["result"]
    parameters = action.get("parameters") or {}
    answer = action.get("type") in ("answer", "response")
    seen = state.get("observation")
    return {
        "turn_id": state.get("turn", number),
        "timestamp": seconds_written(step.get("timestamp") or 0.0),
        "observation": {
            "type": state.get("observed") or OBSERVED[number > 1],
            "content": query if number == 1 and not seen else seen,
            "context": state.get("context") or {},
        },
        "thought_process": list(state.get("thoughts") or _thoughts(action)),
        "action": {
            "type": "response" if answer else action.get("kind") or "tool_call",
            "tool_name": None if answer else action.get("tool") or action.get("type"),
            "tool_args": {} if answer else parameters,
            "raw_response": str(parameters.get("text", "")) if answer else action.get("raw", action.get("text")),
        },
        "result": {
            "success": bool(result.get("success")),
            "output": result.get("output"),
            "error": None if result.get("error") in (None, "") else str(result["error"]),
            "execution_time_ms": step.get("duration_ms") or 0.0,
        },
    }


def _thoughts(action: Mapping[str, Any]) -> list[str]:
    """The words of a model before it called a tool, and those of a step that only thinks."""
    thinks = action.get("type") in ("tool", *THINKING)
    return [str(action["text"])] if thinks and action.get("text") else []


def trajectory_read(payload: Mapping[str, Any], *, scenario: int) -> Trajectory:
    """The rollout of a payload that is valid by the schema. Its reward is unknown yet (NaN).

    Raises:
        ValueError: a timestamp is invalid, the end is before the start, or turns are not in order.
    """
    turns = payload["turns"]
    numbers = [turn["turn_id"] for turn in turns if "turn_id" in turn]
    if numbers != sorted(set(numbers)):
        raise ValueError("turns: their turn_id must rise")
    task, about = payload.get("task_context") or {}, payload.get("metadata") or {}
    began = read(payload["start_timestamp"]) if "start_timestamp" in payload else _first(turns)
    ended = read(payload["end_timestamp"]) if "end_timestamp" in payload else began
    if began.timestamp() < 0:
        raise ValueError("start_timestamp: it lies before 1970")
    if ended < began:
        raise ValueError("end_timestamp: it lies before start_timestamp")
    steps = [_step(turn, began, number) for number, turn in enumerate(turns, 1)]
    total = min(int(about.get("total_tokens", 0)), 2**31 - 1)
    steps[0].tokens, steps[0].cost_micros = total, round(float(about.get("total_cost_usd", 0.0)) * 1e6)
    succeeded = all(step.result["success"] for step in steps[-1:])
    return Trajectory(
        key=RolloutKey(0, scenario, 0),
        query=task.get("instructions") or _asked(turns),
        steps=steps,
        success=succeeded,
        outcome=float(succeeded),
        evidence={OUTSIDE: _kept(payload, task, about)},
        model=str(about.get("model", ""))[:200],
        started_at=began.timestamp(),
        duration_ms=(ended - began).total_seconds() * 1e3,
    )


def _kept(payload: Mapping[str, Any], task: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "trajectory_id": payload["trajectory_id"],
        "session_id": payload["session_id"],
        "subordinate_profile": payload.get("subordinate_profile"),
        "task_id": task.get("task_id"),
        "complexity_score": task.get("complexity_score"),
        "domain": task.get("domain"),
        "temperature": about.get("temperature"),
    }
    given = {"": payload, "task_context": task, "metadata": about}
    more = {
        place: kept
        for place, values in given.items()
        if (kept := {name: value for name, value in values.items() if name not in NAMED[place]})
    }
    return found | ({"more": more} if more else {})


def _first(turns: Iterable[Mapping[str, Any]]) -> datetime:
    return next((read(turn["timestamp"]) for turn in turns if "timestamp" in turn), datetime.fromtimestamp(0, UTC))


def _asked(turns: Sequence[Mapping[str, Any]]) -> str:
    content = turns[0]["observation"]["content"]
    return content if isinstance(content, str) else ""


def _step(turn: Mapping[str, Any], began: datetime, number: int) -> Step:
    seen, did, got = turn["observation"], turn["action"], turn.get("result") or {}
    if did["type"] == "response":
        action = {"type": "answer", "tool": None, "parameters": {"text": did.get("raw_response") or ""}}
    else:
        action = {
            "type": "tool",
            "kind": did["type"],
            "tool": did.get("tool_name"),
            "parameters": did.get("tool_args") or {},
            "raw": did.get("raw_response"),
        }
    return Step(
        state={
            "observation": seen["content"],
            "observed": seen["type"],
            "context": seen.get("context") or {},
            "thoughts": turn.get("thought_process") or [],
            **({"turn": turn["turn_id"]} if turn.get("turn_id", number) != number else {}),
        },
        action=action,
        result={"success": got.get("success", True), "output": got.get("output"), "error": got.get("error")},
        timestamp=(read(turn["timestamp"]) if "timestamp" in turn else began).timestamp(),
        duration_ms=float(got.get("execution_time_ms") or 0.0),
    )
