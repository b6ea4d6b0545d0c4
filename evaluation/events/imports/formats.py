"""Lines of the files that other trainers write, as trajectories. Pure, no Django.

- ``verifiers``: ``traces.jsonl`` of verifiers 0.4 (messages as nodes of a tree), and ``results.jsonl`` of the versions
  before (``prompt`` and ``completion``).
- ``openenv``: ``results.jsonl`` of OpenEnv 0.3, an episode a line.
- ``art``: JSONL of ART 0.5, a group of trajectories a line, or one trajectory a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from evaluation.events.imports.messages import trajectory_of_messages
from experiences.rollouts.types import Trajectory

LONGEST_NAME: Final = 60


class ImportedRollout(NamedTuple):
    """A rollout with its name in its file ("" without one), and the function that makes it for a scenario."""

    name: str
    made: Callable[[int], Trajectory]


def imported(line: Any, kind: str = "") -> Iterator[ImportedRollout]:
    """The rollouts of one line; ``kind`` "": recognised by its fields.

    Raises:
        ValueError: the line is of no known kind.
    """
    if not isinstance(line, Mapping):
        raise ValueError("a line is an object")
    known = kind or next((name for name, has in SIGNS.items() if any(set(one) <= set(line) for one in has)), "")
    if known not in FORMATS:
        raise ValueError(f"its kind is unknown: {', '.join(FORMATS)} are known")
    yield from FORMATS[known](line)


# -- verifiers ---------------------------------------------------------------------------------------------------------


def _verifiers(line: Mapping[str, Any]) -> Iterator[ImportedRollout]:
    if "nodes" in line:
        yield ImportedRollout(_name(line.get("id")), lambda scenario: _of_trace(line, scenario))
    else:
        name = f"{line.get('task') or ''}-{line.get('example_id', '')}".strip("-")
        yield ImportedRollout(_name(line.get("trajectory_id") or line.get("id")), lambda s: _of_result(line, s, name))


def _of_trace(line: Mapping[str, Any], scenario: int) -> Trajectory:
    nodes = _list(line, "nodes")
    rewards = {name: one for name, one in _object(line, "rewards").items() if isinstance(one, Mapping)}
    paid = {name: _number(one.get("score")) * _number(one.get("weight", 1.0)) for name, one in rewards.items()}
    calls, timing = _list(line, "calls"), _object(_object(line, "timing"), "agent")
    usages = [_object(call, "usage") for call in calls]
    errors = _list(line, "errors")
    error = f"agent: {errors[-1].get('type')}: {errors[-1].get('message')}" if errors else ""
    return trajectory_of_messages(
        _longest_branch(nodes),
        scenario=scenario,
        reward=math.fsum(paid.values()) if paid else None,
        components=paid,
        success=bool(paid) and math.fsum(paid.values()) > 0 and not errors,
        about={
            "format": "verifiers",
            "id": line.get("id"),
            "task": _object(line, "task").get("key") or _object(line, "task").get("type"),
            "metrics": _object(line, "metrics"),
            "stop_condition": line.get("stop_condition"),
        },
        error=error,
        model=str(next((call.get("model") for call in calls if call.get("model")), "")),
        tokens=sum(int(_number(one.get(name))) for one in usages for name in ("prompt_tokens", "completion_tokens")),
        cost_usd=math.fsum(_number(usage.get("cost")) for usage in usages),
        started_at=_number(timing.get("start")) or _number(_object(line, "timing").get("start")),
        duration_s=max(_number(timing.get("end")) - _number(timing.get("start")), 0.0),
    )


def _longest_branch(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages from the root to the last node: the branch that ended last."""
    path: list[Mapping[str, Any]] = []
    at = len(nodes) - 1 if nodes else None
    while at is not None:
        if not 0 <= at < len(nodes) or len(path) > len(nodes):
            raise ValueError("nodes: a parent is none")
        path.append(nodes[at]["message"])
        at = nodes[at].get("parent")
    return path[::-1]


def _of_result(line: Mapping[str, Any], scenario: int, name: str) -> Trajectory:
    known = ("prompt", "completion", "reward", "answer", "info", "example_id", "task", "trajectory_id", "id")
    metrics = {
        key: float(value)
        for key, value in {**line, **_object(line, "metrics")}.items()
        if key not in known and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return trajectory_of_messages(
        [*_messages(line["prompt"], "user"), *_messages(line["completion"], "assistant")],
        scenario=scenario,
        reward=_reward(line),
        components=metrics,
        about={"format": "verifiers", "task": name, "answer": line.get("answer"), "info": line.get("info")},
        error=f"agent: {line['error']}" if line.get("error") else "",
        model=str(line.get("model") or ""),
        duration_s=_number(line.get("generation_ms")) / 1e3,
    )


def _messages(value: Any, role: str) -> list[Mapping[str, Any]]:
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value)


# -- OpenEnv -----------------------------------------------------------------------------------------------------------


def _openenv(line: Mapping[str, Any]) -> Iterator[ImportedRollout]:
    yield ImportedRollout(
        _name(line.get("episode_id")),
        lambda scenario: trajectory_of_messages(
            _list(line, "messages"),
            scenario=scenario,
            reward=_reward(line),
            components={
                name: float(value)
                for name, value in _object(line, "verify_metrics").items()
                if isinstance(value, int | float)
            },
            about={
                "format": "openenv",
                "id": line.get("episode_id"),
                "task": line.get("task"),
                "metrics": _object(line, "metrics"),
                "done": line.get("done"),
            },
            model=str(_object(line, "extra").get("model") or ""),
        ),
    )


# -- ART ---------------------------------------------------------------------------------------------------------------


def _art(line: Mapping[str, Any]) -> Iterator[ImportedRollout]:
    for one in _list(line, "trajectories") if "trajectories" in line else [line]:
        yield ImportedRollout("", partial(_of_art, one))


def _of_art(one: Mapping[str, Any], scenario: int) -> Trajectory:
    metrics = {name: float(value) for name, value in _object(one, "metrics").items() if isinstance(value, int | float)}
    return trajectory_of_messages(
        [part.get("message", part) for part in _list(one, "messages_and_choices")],
        scenario=scenario,
        reward=_reward(one),
        components=metrics,
        about={"format": "art", "metadata": _object(one, "metadata"), "logs": list(one.get("logs") or ())[:100]},
        model=str(_object(one, "metadata").get("model") or ""),
        duration_s=metrics.get("duration", 0.0),
    )


# -- values ------------------------------------------------------------------------------------------------------------


def _name(value: Any) -> str:
    return "" if value is None else str(value)[:LONGEST_NAME]


def _reward(line: Mapping[str, Any]) -> float | None:
    found = line.get("reward")
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _list(owner: Mapping[str, Any], name: str) -> list[Any]:
    found = owner.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise ValueError(f"{name} is a list of objects")
    return found


def _object(owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = owner.get(name)
    return found if isinstance(found, Mapping) else {}


FORMATS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[ImportedRollout]]]] = {
    "verifiers": _verifiers,
    "openenv": _openenv,
    "art": _art,
}
SIGNS: Final = {
    "verifiers": (("nodes", "task"), ("prompt", "completion")),
    "openenv": (("episode_id", "messages"),),
    "art": (("trajectories",), ("messages_and_choices",)),
}
