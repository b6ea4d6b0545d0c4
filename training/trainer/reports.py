"""Reports of the trainer: one for each iteration, validation and decision of a gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.types import TrajectoryGroup


@dataclass
class SelectionReport:
    """One evaluation on the selection queries, against the policy the run began with, on the same queries with
    the same seeds. Rates lie in [0, 1]; ``low`` and ``high`` are the 95 % Wilson interval of the success rate."""

    iteration: int
    n_queries: int
    samples: int
    success_rate: float
    low: float
    high: float
    baseline_success_rate: float
    improvement: float
    improvement_low: float
    improvement_high: float
    p_value: float
    mean_steps: float
    mean_reward: float


@dataclass
class GateReport:
    """Test of a library on queries outside of training, and the decision (docs/algorithms.md#the-gate).

    ``candidate`` and ``current`` are handles; rates lie in [0, 1]. ``difference`` with its 95 % interval is candidate
    less current; ``gain`` and ``p_value`` (one-sided, over all interim analyses) compare it with the initial context.
    ``final`` is the gate at the end of a run, where ``accepted`` means that the candidate is shipped; elsewhere a step
    of the search ended. ``kept``: whether the search goes on with the lessons of the step.
    ``samples`` per query were taken of each side, in ``looks`` of at most ``most_looks`` interim analyses.
    ``tokens`` is the approximate size of the candidate in a call, ``lessons_each`` the number of lessons of a query,
    both on average over the queries of training; ``where`` is the result of ``gate.where``. ``needs`` is set for a
    refused candidate that did better: with so many selection queries a true gain of that size is found in four of five
    runs (None: with more than 200). ``unsure`` has (mean, deviation, rollouts) of the effect of each lesson that was
    still tried at the end of a run which measures them.
    """

    iteration: int
    epoch: int
    candidate: tuple[str, ...]
    current: tuple[str, ...]
    n_queries: int
    samples: int
    candidate_rate: float
    current_rate: float
    difference: float
    low: float
    high: float
    gain: float
    p_value: float
    accepted: bool
    why: str
    rolled_back: list[str] = field(default_factory=list)
    tokens: int = 0
    lessons_each: float | None = None
    where: dict[str, dict[str, Any]] = field(default_factory=dict)
    looks: int = 1
    most_looks: int = 1
    final: bool = True
    kept: bool = False
    needs: int | None = None
    unsure: list[tuple[float, float, int]] = field(default_factory=list)


@dataclass
class IterationReport:
    """One applied iteration. ``groups`` carry their advantages; ``baseline`` is set on the first iteration only:
    the evaluation of the policy the run began with. ``reflected`` holds the proposals for the library and their
    outcomes, ``gate`` the decision about the candidate."""

    iteration: int
    groups: list[TrajectoryGroup]
    metrics: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    selection: SelectionReport | None = None
    baseline: SelectionReport | None = None
    epoch: int = 1
    reflected: Reflected | None = None
    gate: GateReport | None = None
    stop_reason: str = ""
    rollout_seconds: float = 0.0
    update_seconds: float = 0.0
