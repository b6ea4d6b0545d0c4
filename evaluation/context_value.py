"""Costs and gains of a learned context. Pure.

A call is one request to the agent. The context makes a call more expensive, and more calls succeed. So both are
compared at equal success: a call with the context brings s1 successes for c1 dollars; as many successes without it
would have cost s1 · c0 / s0. The difference is the saving per call. The cost of learning over the saving is the number
of calls after which the context has paid for itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from agentcore_site.lib.figures import p_words, signed
from agentcore_site.lib.money_format import usd

UNTRAINED: Final = "the untrained baseline"
PaysOff = Literal["after", "never", "unknown"]


@dataclass(frozen=True, slots=True)
class ContextValue:
    """Rates in [0, 1], money in dollars per call. ``learning_cost`` is the whole cost of the training job in the
    ledger, its proof included. ``saving`` is None and ``pays_off`` "unknown" if nothing succeeds without the context,
    or if calls cost nothing; "never" if a success is not cheaper with it. ``calls`` is set with "after" only."""

    success_without: float
    success_with: float
    cost_without: float
    cost_with: float
    extra_cost: float
    learning_cost: float
    saving: float | None
    pays_off: PaysOff
    calls: int | None


def context_value(
    *, success_without: float, success_with: float, cost_without: float, cost_with: float, learning_cost: float
) -> ContextValue:
    """The value of a context from both arms' success rates and costs per call."""
    saving = None
    if success_without > 0 and cost_without > 0:
        saving = success_with * cost_without / success_without - cost_with
    pays_off: PaysOff = "unknown" if saving is None else "after" if saving > 0 else "never"
    return ContextValue(
        success_without=success_without,
        success_with=success_with,
        cost_without=cost_without,
        cost_with=cost_with,
        extra_cost=cost_with - cost_without,
        learning_cost=learning_cost,
        saving=saving,
        pays_off=pays_off,
        calls=math.ceil(learning_cost / saving) if saving is not None and saving > 0 else None,
    )


def thousand_calls(value: ContextValue) -> dict[str, float | None]:
    """Dollars per thousand calls: the cost of a single call is often too small to read."""
    return {
        "cost_without": 1000 * value.cost_without,
        "cost_with": 1000 * value.cost_with,
        "saving": None if value.saving is None else 1000 * value.saving,
    }


def context_words(found: Mapping[str, Any]) -> str:
    """The value as a sentence. ``found`` is a ``ContextValue`` with the size of the context and its test result."""
    before = found.get("baseline", UNTRAINED)
    if not found["lessons"]:
        kept = "" if before == UNTRAINED else f" to {before}"
        return f"Nothing was added{kept}: no lesson was shown to help, so a call costs the same."
    without = "without" if before == UNTRAINED else f"with {before}"
    rates = f"with it {_rate(found['success_with'])} succeed, {without} {_rate(found['success_without'])}"
    sure = f"{_points(found['improvement'])} points, 95 % interval {_points(found['low'])} to {_points(found['high'])}"
    sure += f", {p_words(found['p_value'])}"
    dearer = "more" if found["extra_cost"] >= 0 else "less"
    added = "" if before == UNTRAINED else " were added"
    return (
        f"Learned context: {found['tokens']:,} tokens per call{added}; {rates} (paired: {sure}); it costs "
        f"{usd(abs(found['extra_cost']))} {dearer} per call and {_when(found)}."
    )


def _when(found: Mapping[str, Any]) -> str:
    learned = f"learning cost {usd(found['learning_cost'])}"
    if found["pays_off"] == "after":
        return f"pays for itself after {found['calls']:,} calls ({learned})"
    if found["pays_off"] == "never":
        return f"never pays for itself, at these prices ({learned})"
    why = "nothing succeeds without it" if found["success_without"] <= 0 else "calls cost nothing"
    return f"when it pays for itself is unknown: {why}"


def _rate(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return signed(100 * value)
