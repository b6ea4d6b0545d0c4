"""The gate: what is told outside of training changes only when queries that were kept out of training support it.

With ``tfgrpo`` each epoch ends at a gate, and a library that is worse than the present one goes back to it. With
``grpo`` the rewards of training decide which lessons are told to whom; the gate is asked once, at the end. In both, a
run ends with a context that is shown to be better than the one it began with, or with that one.
"""

from __future__ import annotations

from training.algorithm.arrays import FloatArray
from training.algorithm.inference import PairedDifference, paired_difference
from training.config import GRPOConfig
from training.policies.context import ContextPolicy
from training.trainer.play import Played
from training.trainer.selection import RESAMPLES
from training.trainer.setup import GateReport, TrainerSetup
from training.trainer.state import TrainerState


def gates(config: GRPOConfig) -> int:
    """How many looks a run may decide by: each gets its part of the error that is allowed."""
    return config.context.epochs if config.algorithm == "tfgrpo" else 1


def is_due(setup: TrainerSetup, iteration: int, *, last: bool) -> bool:
    return last or (setup.config.algorithm == "tfgrpo" and setup.ends_epoch(iteration))


def decide(
    setup: TrainerSetup,
    state: TrainerState,
    policy: ContextPolicy,
    candidate: tuple[str, ...],
    played: Played,
    last: bool,
) -> GateReport:
    """Ships the candidate, or goes back to what is supported. ``played`` are the candidate's results.

    ``state.baseline_success`` and ``state.current_success`` must have been measured.
    """
    assert state.baseline_success is not None and state.current_success is not None
    config, current = setup.config, policy.shipped
    tokens = sum(lesson.tokens for lesson in policy.library.chosen(candidate))
    against_current = _compared(played.success, state.current_success)
    against_start = _compared(played.success, state.baseline_success)
    proven = _better(config, _compared(state.current_success, state.baseline_success))
    accepted, why = _verdict(config, against_current, against_start, last, proven)
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
        p_value=one_sided(against_start),
        accepted=accepted,
        why=why,
        rolled_back=rolled_back,
        tokens=tokens,
    )


def one_sided(difference: PairedDifference) -> float:
    """How likely a difference as large in this direction is by chance."""
    half = difference.p_value / 2
    return half if difference.mean > 0 else 1 - half


def _verdict(
    config: GRPOConfig, against_current: PairedDifference, against_start: PairedDifference, last: bool, proven: bool
) -> tuple[bool, str]:
    """``proven`` tells whether the present library is itself better than what the run began with: at the end, one that
    is not would be given up in any case, and holds nobody back."""
    margin = config.context.gate_margin
    if config.algorithm == "tfgrpo" and against_current.low < -margin and (proven or not last):
        return False, f"it may be worse than the present one by more than {margin * 100:g} points"
    if (last or config.algorithm == "grpo") and not _better(config, against_start):
        return False, "it is not shown to be better than what the run began with"
    if last or config.algorithm == "grpo":
        return True, "it is better than what the run began with"
    return True, f"it is not worse than the present one by more than {margin * 100:g} points"


def _better(config: GRPOConfig, against_start: PairedDifference) -> bool:
    return one_sided(against_start) <= config.context.gate_alpha / gates(config)


def _compared(treatment: FloatArray, control: FloatArray) -> PairedDifference:
    return paired_difference(treatment, control, resamples=RESAMPLES)
