"""A conversation in chat messages as a trajectory. Pure, no Django."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from experiences.rollouts.types import RolloutKey, Step, Trajectory

EVIDENCE: Final = "imported"  # the key in a trajectory's evidence for values without a column
MOST_STEPS: Final = 32_767  # of a row
LONGEST_MODEL: Final = 80
MOST_TOKENS: Final = 2**31  # of a column
LATEST: Final = 2**33  # seconds since the epoch: in the year 2242


def trajectory_of_messages(
    messages: Sequence[Mapping[str, Any]],
    *,  # what lines of the formats say beside the messages
    scenario: int,
    reward: float | None,
    about: Mapping[str, Any],
    components: Mapping[str, float] | None = None,
    success: bool | None = None,
    error: str = "",
    model: str = "",
    tokens: int = 0,
    cost_usd: float = 0.0,
    started_at: float = 0.0,
    duration_s: float = 0.0,
) -> Trajectory:
    """Each message of the assistant becomes an answer, or a step for each of its tool calls. Without ``success`` a
    reward above 0 counts as success.

    Raises:
        ValueError: a message is invalid, or the agent has no message.
    """
    steps: list[Step] = []
    results = {str(one["tool_call_id"]): _text(one) for one in messages if one.get("tool_call_id") is not None}
    seen = ""
    for message in messages:
        if not isinstance(message.get("role"), str):
            raise ValueError("a message has a role")
        if message["role"] == "assistant":
            steps += _steps(message, seen, results, started_at)
        else:
            seen = _text(message)
    if not steps:
        raise ValueError("no message is the agent's own")
    if not 0 <= tokens < MOST_TOKENS or not 0 <= started_at < LATEST:
        raise ValueError("its tokens or its start are out of their range")
    steps[0].tokens, steps[0].cost_micros = tokens, round(cost_usd * 1e6)
    succeeded = success if success is not None else bool(reward and reward > 0) and not error
    return Trajectory(
        key=RolloutKey(0, scenario, 0),
        query=next((_text(one) for one in messages if one["role"] == "user"), ""),
        steps=steps[:MOST_STEPS],
        success=succeeded,
        outcome=float(succeeded),
        reward=math.nan if reward is None else reward,
        components=dict(components or {}),
        evidence={EVIDENCE: {**about, "system": _system(messages)}},
        truncated=len(steps) > MOST_STEPS,
        error=error,
        model=model[:LONGEST_MODEL],
        started_at=started_at,
        duration_ms=duration_s * 1e3,
    )


def _steps(message: Mapping[str, Any], seen: str, results: Mapping[str, str], at: float) -> list[Step]:
    text = _text(message)
    thoughts = [one for one in (message.get("reasoning_content"), text) if isinstance(one, str) and one]
    steps = []
    for call in message.get("tool_calls") or ():
        about = call.get("function", call)
        result = results.get(str(call.get("id")))
        steps.append(
            Step(
                state={"observation": seen, "done": False, "thoughts": thoughts},
                action={"type": "tool", "tool": str(about.get("name", "")), "parameters": _given(about)},
                result={
                    "success": result is not None,
                    "output": result,
                    "error": None if result is not None else "no result",
                },
                timestamp=at,
            )
        )
    if not steps:
        steps = [
            Step(
                state={"observation": seen, "done": False, "thoughts": thoughts[:-1]},
                action={"type": "answer", "tool": None, "parameters": {"text": text}},
                result={"success": True, "output": None, "error": None},
                timestamp=at,
            )
        ]
    return steps


def _given(about: Mapping[str, Any]) -> dict[str, Any]:
    found = about.get("arguments")
    if isinstance(found, str):
        try:
            found = orjson.loads(found)
        except orjson.JSONDecodeError:
            return {"input": found}
    return dict(found) if isinstance(found, Mapping) else {}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping) and "text" in part)


def _system(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(_text(message) for message in messages if message["role"] in ("system", "developer"))
