"""Parts that the scorers share: what a row expects, and the outcome of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiences.privacy import cut_short
from experiences.rollouts.types import Outcome

MAX_MATCHED = 10_000  # characters that a regular expression is tried on


def target_of(expected: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is not empty. Raises ValueError, for the row's author: all are."""
    for name in names:
        value = expected.get(name)
        if value is not None and value != "" and value != []:
            return value
    raise ValueError(f"there is nothing to check against: expected_outcome needs {' or '.join(map(repr, names))}.")


def several(target: Any) -> list[str]:
    return [str(one) for one in target] if isinstance(target, list) else [str(target)]


def evidence_of(scorer: str, answer: str, expected: Any) -> dict[str, Any]:
    return {"scorer": scorer, "answer": cut_short(answer, MAX_MATCHED), "expected": expected}


def verdict(success: bool, scorer: str, answer: str, expected: Any, **notes: Any) -> Outcome:
    return Outcome(float(success), success, evidence_of(scorer, answer, expected) | notes)
