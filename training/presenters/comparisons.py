"""Two checkpoints side by side: figures, the settings in which their runs differ, and what they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from training.models import PolicyCheckpoint
from training.services.checkpoints import Damaged, checkpoint_load

if TYPE_CHECKING:
    from training.policies.context import ContextPolicy


def checkpoint_comparison(a: PolicyCheckpoint, b: PolicyCheckpoint) -> dict[str, Any]:
    """``metrics`` are {name, a, b, difference}; ``settings`` only those that differ."""
    return {
        "same_bytes": a.sha256 == b.sha256,
        "same_run": a.run_id is not None and a.run_id == b.run_id,
        "metrics": [_figure(name, a, b) for name in _names(_figures(a), _figures(b))],
        "settings": [
            {"name": name, "a": left, "b": right}
            for name, left, right in _pairs(_flat(_config(a)), _flat(_config(b)))
            if left != right
        ],
        "told": _told_differently(a, b),
    }


def _told_differently(a: PolicyCheckpoint, b: PolicyCheckpoint) -> list[dict[str, Any]] | None:
    """The lessons that two contexts don't share, each with its text in either; None where one of the two tells
    nothing (an action policy), or can't be read any more."""
    mine, theirs = _shipped(a), _shipped(b)
    if mine is None or theirs is None:
        return None
    return [
        {"handle": handle, "a": mine.get(handle), "b": theirs.get(handle)}
        for handle in dict.fromkeys([*mine, *theirs])
        if mine.get(handle) != theirs.get(handle)
    ]


def _shipped(checkpoint: PolicyCheckpoint) -> dict[str, str] | None:
    """Text by handle of what the checkpoint would tell."""
    if checkpoint.run is None or not checkpoint.run.tells:
        return None
    # Imported here: pages of action policies don't load a trainer for this.
    from training.learners import policy_of

    try:
        policy = policy_of(checkpoint_load(checkpoint))
    except (Damaged, ValueError):
        return None
    return {lesson.handle: lesson.text for lesson in cast("ContextPolicy", policy).shipped_lessons}


def _figures(checkpoint: PolicyCheckpoint) -> dict[str, Any]:
    own = {
        "iteration": checkpoint.iteration,
        "size": checkpoint.size,
        "validation_score": checkpoint.validation_score,
        "validation_low": checkpoint.validation_low,
    }
    # The surrogate loss compares nothing: it is about zero by construction.
    return own | {name: value for name, value in checkpoint.metrics.items() if name != "loss"}


def _figure(name: str, a: PolicyCheckpoint, b: PolicyCheckpoint) -> dict[str, Any]:
    left, right = _figures(a).get(name), _figures(b).get(name)
    both = isinstance(left, int | float) and isinstance(right, int | float)
    return {"name": name, "a": left, "b": right, "difference": right - left if both else None}  # type: ignore[operator]


def _config(checkpoint: PolicyCheckpoint) -> dict[str, Any]:
    return checkpoint.run.configuration.as_dict() if checkpoint.run is not None else {}


def _pairs(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, a.get(name), b.get(name)) for name in _names(a, b)]


def _names(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
