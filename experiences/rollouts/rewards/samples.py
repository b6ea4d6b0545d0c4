"""Trajectories that are written by hand, or taken from an export, to try a reward before an agent has made any.
Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from experiences.rollouts.types import RolloutKey, Step, Trajectory

MAX_STEPS: Final = 200


def sample_trajectory(value: Any, place: int) -> Trajectory:
    """A trajectory from JSON: ``success`` and ``outcome`` in [0, 1] (one follows from the other), ``steps`` with
    action and result, ``evidence``. Those with the same ``iteration`` and ``scenario`` are a group.

    Raises:
        ValueError: it is not one; the message says which (from 1) and what to do.
    """
    name = f"sample {place + 1}"
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is no object.")
    success = value.get("success")
    if success is not None and not isinstance(success, bool):
        raise ValueError(f"{name}: success is true or false.")
    outcome = _number(value, "outcome", name, default=float(success or False))
    if not 0 <= outcome <= 1:
        raise ValueError(f"{name}: outcome is between 0 and 1; got {outcome:g}.")
    steps, evidence = value.get("steps", []), value.get("evidence", {})
    if not isinstance(steps, Sequence) or isinstance(steps, str) or len(steps) > MAX_STEPS:
        raise ValueError(f"{name}: steps is a list of at most {MAX_STEPS}.")
    if not isinstance(evidence, Mapping):
        raise ValueError(f"{name}: evidence is an object.")
    # Without a place of its own each is a rollout of one and the same query.
    places = {"iteration": 0, "scenario": 0, "rollout": place}
    key = RolloutKey(*(int(_number(value, field, name, default=default)) for field, default in places.items()))
    return Trajectory(
        key=key,
        query=str(value.get("query", "")),
        steps=[_step(one, f"{name}, step {n}") for n, one in enumerate(steps, start=1)],
        success=outcome == 1 if success is None else success,
        outcome=outcome,
        evidence=dict(evidence),
        truncated=value.get("truncated") is True,
        error=str(value.get("error") or ""),
        duration_ms=_number(value, "duration_ms", name),
    )


def _step(value: Any, name: str) -> Step:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is no object.")
    tokens, cost, took = (_number(value, field, name) for field in ("tokens", "cost_micros", "duration_ms"))
    return Step(
        state=_part(value, "state", name),
        action=_part(value, "action", name),
        result=_part(value, "result", name),
        tokens=int(tokens),
        cost_micros=int(cost),
        duration_ms=took,
    )


def _part(value: Mapping[str, Any], field: str, name: str) -> dict[str, Any]:
    found = value.get(field, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{name}: {field} is an object.")
    return dict(found)


def _number(value: Mapping[str, Any], field: str, name: str, *, default: float = 0.0) -> float:
    found = value.get(field, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ValueError(f"{name}: {field} is a number.")
    return float(found)
