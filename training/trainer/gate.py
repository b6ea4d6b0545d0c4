"""The gate: what is told outside of training changes only when queries that were kept out of training support it.

With ``tfgrpo`` each epoch ends at a gate, and a library that is worse than the present one goes back to it. With
``grpo`` the rewards of training decide which lessons are told to whom; the gate is asked once, at the end. In both, a
run ends with a context that is shown to be better than the one it began with, or with that one.

What decides is a comparison with several looks (``training.algorithm.sequential``): more samples are paid for only
while it can still go either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from training.algorithm.arrays import FloatArray
from training.algorithm.inference import PairedDifference, paired_difference, per_query
from training.algorithm.sequential import Look, Sequential
from training.config import GRPOConfig
from training.policies.context import ContextPolicy
from training.trainer.play import Played
from training.trainer.selection import RESAMPLES
from training.trainer.setup import GateReport, TrainerSetup
from training.trainer.state import TrainerState

NOTHING_NEW = "it is what the run began with"
NOT_SHOWN = "it is not shown to be better than what the run began with"
SHOWN = "it is better than what the run began with"

# Plays so many more samples of each selection query: the first argument is how many there are.
More = Callable[[int, int], Played]


@dataclass(frozen=True, slots=True)
class Compared:
    """The candidate's samples, and the last look at them beside those of what the run began with; how many looks were
    taken of how many (0 where there was nothing to compare)."""

    played: Played
    look: Look
    looks: int
    most: int


def gates(config: GRPOConfig) -> int:
    """How many comparisons a run may decide by: each gets its part of the error that is allowed."""
    return config.context.epochs if config.algorithm == "tfgrpo" else 1


def design(config: GRPOConfig) -> Sequential:
    context = config.context
    return Sequential(context.gate_steps, context.look_samples, context.gate_alpha / gates(config))


def is_due(setup: TrainerSetup, iteration: int, *, last: bool) -> bool:
    return last or (setup.config.algorithm == "tfgrpo" and setup.ends_epoch(iteration))


def compare(config: GRPOConfig, state: TrainerState, played: Played, *, more: More, more_of_start: More) -> Compared:
    """Looks at the candidate beside what the run began with, and asks both for further samples while it is open.

    ``state.baseline_success`` grows with what was asked of the start.
    """
    assert state.baseline_success is not None
    planned = design(config)
    look = Look(0.0, 1.0, "open")
    for at in range(1, planned.looks + 1):
        wanted = at * planned.step
        if played.success.shape[1] < wanted:
            played = played.followed_by(more(played.success.shape[1], wanted - played.success.shape[1]))
        have = state.baseline_success.shape[1]
        if have < wanted:
            state.baseline_success = _beside(state.baseline_success, more_of_start(have, wanted - have).success)
        before = state.baseline_success[:, :wanted]
        look = planned.look(per_query(played.success[:, :wanted]) - per_query(before), at)
        if look.decision != "open":
            break
    return Compared(played, look, at, planned.looks)


def unchanged(played: Played) -> Compared:
    """Where the candidate is what the run began with: there is nothing to compare, and nothing is paid for it."""
    return Compared(played, Look(0.0, 1.0, "not_better"), 0, 0)


def decide(
    setup: TrainerSetup,
    state: TrainerState,
    policy: ContextPolicy,
    candidate: tuple[str, ...],
    compared: Compared,
    last: bool,
) -> GateReport:
    """Ships the candidate, or goes back to what is supported.

    ``state.baseline_success`` and ``state.current_success`` must have been measured.
    """
    assert state.baseline_success is not None and state.current_success is not None
    config, current, played = setup.config, policy.shipped, compared.played
    tokens = sum(lesson.tokens for lesson in policy.library.chosen(candidate))
    against_current = _paired(played.success, state.current_success)
    against_start = _paired(played.success, state.baseline_success)
    proven = current != policy.start and _better(config, state.current_success, state.baseline_success)
    accepted, why = _verdict(config, against_current, compared, last, proven)
    current_rate = float(state.current_success.mean())
    rolled_back: list[str] = []
    if accepted:
        policy.ship(candidate)
        state.current_success = played.success
    elif config.algorithm == "tfgrpo" and last and not proven:
        rolled_back = policy.back_to_start()
        state.current_success = state.baseline_success
    elif config.algorithm == "tfgrpo":
        rolled_back = policy.roll_back()
    return GateReport(
        iteration=state.iteration,
        epoch=setup.epoch(state.iteration),
        candidate=candidate,
        current=current,
        n_queries=played.success.shape[0],
        samples=played.success.shape[1],
        candidate_rate=played.success_rate,
        current_rate=current_rate,
        difference=against_current.mean,
        low=against_current.low,
        high=against_current.high,
        gain=against_start.mean,
        p_value=compared.look.p_value,
        accepted=accepted,
        why=why,
        rolled_back=rolled_back,
        tokens=tokens,
        looks=compared.looks,
        most_looks=compared.most,
    )


def _verdict(
    config: GRPOConfig, against_current: PairedDifference, compared: Compared, last: bool, proven: bool
) -> tuple[bool, str]:
    """``proven`` tells whether the present library is itself better than what the run began with: at the end, one that
    is not would be given up in any case, and holds nobody back."""
    margin = config.context.gate_margin
    if compared.looks == 0:
        return False, NOTHING_NEW
    if config.algorithm == "tfgrpo" and against_current.low < -margin and (proven or not last):
        return False, f"it may be worse than the present one by more than {margin * 100:g} points"
    if last or config.algorithm == "grpo":
        better = compared.look.decision == "better"
        return better, SHOWN if better else NOT_SHOWN
    return True, f"it is not worse than the present one by more than {margin * 100:g} points"


def _better(config: GRPOConfig, treatment: FloatArray, control: FloatArray) -> bool:
    """One look at all the samples that there are."""
    once = Sequential(1, 1, config.context.gate_alpha / gates(config))
    return once.look(per_query(treatment) - per_query(control), 1).decision == "better"


def _paired(treatment: FloatArray, control: FloatArray) -> PairedDifference:
    return paired_difference(treatment, control, resamples=RESAMPLES)


def _beside(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.hstack([a, b])
