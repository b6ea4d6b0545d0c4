"""A lesson as a job reports it: text, origin, measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from experiences.learning.lessons.guards import MAX_WORDS, words
from experiences.learning.lessons.stamps import StampRefused

KINDS: Final = frozenset({"experience", "exemplar"})
STATUSES: Final = frozenset({"proposed", "active", "pruned", "quarantined"})
EMPTY: Final = "its summary is empty"
LONGEST: Final = {"handle": 16, "summary": 1000, "domain": 60, "group": 40}


@dataclass(frozen=True, slots=True)
class LessonUpdate:
    """One lesson in its present state.

    ``weight`` is the probability that a rollout sees it; ``effect`` with its standard error ``effect_error`` is what it
    adds to the reward, None until it was measured over ``rollouts`` rollouts. ``taught_by`` are ids of trajectories,
    ``group`` is "iteration/query". ``stamp`` is needed only where another site vouches for the text
    (``services/importing.py``); a job's own lessons are stamped when they are written.
    """

    handle: str
    summary: str
    kind: str = "experience"
    why: str = ""
    domain: str = ""
    status: str = "proposed"
    version: int = 1
    weight: float = 0.5
    effect: float | None = None
    effect_error: float | None = None
    rollouts: int = 0
    tokens: int = 0
    epoch: int = 1
    group: str = ""
    task: str = ""
    taught_by: tuple[UUID | str, ...] = ()
    parents: tuple[str, ...] = ()
    ground_truth: float | None = None
    relative_rank: float | None = None
    tool_stats: tuple[Mapping[str, Any], ...] = ()
    stamp: str = ""


def states_check(states: Iterable[LessonUpdate]) -> None:
    """Checks all but the number of words, whose limit is the agent's own.

    Raises:
        Refused: one of them can't be kept; it is named by its place and its handle.
    """
    seen: set[str] = set()
    for place, state in enumerate(states):
        if fault := state_fault(state) or ("it is there twice" if state.handle in seen else ""):
            raise StampRefused(named(place, state), fault)
        seen.add(state.handle)


def named(place: int, state: LessonUpdate) -> str:
    """Name of a record of a batch, for messages."""
    return f"record {place} ({state.handle or 'without a handle'})"


def state_fault(state: LessonUpdate) -> str:
    """Why a state can't be kept; "" if it can."""
    if not state.handle:
        return "it has no handle"
    for name, limit in LONGEST.items():
        if len(getattr(state, name)) > limit:
            return f"its {name} is longer than {limit} characters"
    if state.kind not in KINDS:
        return f"there is no kind {state.kind!r}"
    if state.status not in STATUSES:
        return f"there is no status {state.status!r}"
    if not state.summary.strip():
        return EMPTY
    return _figures_fault(state) or _names_fault(state)


def summary_fault(summary: str, max_words: int = MAX_WORDS) -> str:
    """Why a text is no summary; "" if it is one."""
    if not summary.strip():
        return EMPTY
    if len(summary) > LONGEST["summary"]:
        return f"its summary is longer than {LONGEST['summary']:,} characters"
    if (n := len(words(summary))) > max_words:
        return f"its summary has {n} words; {max_words} are allowed"
    return ""


def _figures_fault(state: LessonUpdate) -> str:
    figures = (state.weight, state.effect, state.effect_error, state.ground_truth, state.relative_rank)
    if any(figure is not None and not math.isfinite(figure) for figure in figures):
        return "one of its figures is not finite"
    if not 0.0 <= state.weight <= 1.0:
        return f"its weight is {state.weight}, and a probability is between 0 and 1"
    if state.version < 1 or state.epoch < 1 or min(state.rollouts, state.tokens) < 0:
        return "one of its counts is below what it can be"
    return ""


def _names_fault(state: LessonUpdate) -> str:
    if any(len(parent) > LONGEST["handle"] for parent in state.parents):
        return "one of its parents is no handle"
    try:
        for one in state.taught_by:
            UUID(str(one))
    except ValueError:
        return f"{one!r} among what taught it is no id of a trajectory"
    return ""
