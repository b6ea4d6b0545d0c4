"""The evaluation that selects checkpoints: on the selection queries, paired with the policy the run began with."""

from __future__ import annotations

import math

import numpy as np

from agentcore_site.lib.statistics import wilson_interval
from training.algorithm.arrays import FloatArray
from training.algorithm.inference import paired_difference, per_query
from training.schema import GRPOConfig
from training.trainer.play import Played
from training.trainer.reports import SelectionReport
from training.trainer.state import TrainerState

SEARCH = 1  # the iteration in the keys of a search's rollouts: its queries have numbers of their own
ALL_ITERATIONS = "all_iterations"  # a run's ``stop_reason``
EARLY_STOPPED = "early_stopped"  # likewise
EQUAL_REWARDS = "equal_rewards"  # likewise
RESAMPLES = 1_999  # signs, for a p-value that is looked at, not reported


def selection_report(iteration: int, played: Played, baseline_success: FloatArray) -> SelectionReport:
    """Compares success (n, k) with the baseline's, query by query."""
    n, samples = played.success.shape
    interval = wilson_interval(float(played.success.sum()), played.success.size)
    difference = paired_difference(played.success, baseline_success, resamples=RESAMPLES)
    return SelectionReport(
        iteration=iteration,
        n_queries=n,
        samples=samples,
        success_rate=played.success_rate,
        low=interval.low,
        high=interval.high,
        baseline_success_rate=float(baseline_success.mean()),
        improvement=difference.mean,
        improvement_low=difference.low,
        improvement_high=difference.high,
        p_value=difference.p_value,
        mean_steps=played.mean_steps,
        mean_reward=played.mean_reward,
    )


def stop_on_plateau(config: GRPOConfig, state: TrainerState, played: Played) -> None:
    """Counts a validation that was no better than those before; after enough of them the run stops, where it may."""
    plateau = state.stopper.update(played.success_rate, standard_error(played.success))
    if plateau and config.early_stopping.enabled:
        state.stop_reason = state.stop_reason or EARLY_STOPPED


def standard_error(success: FloatArray) -> float:
    """Standard error of the mean over queries; success is (n, k)."""
    rates = per_query(success)
    return float(np.std(rates, ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else 0.0
