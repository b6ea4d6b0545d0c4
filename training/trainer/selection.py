"""The evaluation that selects checkpoints: on the selection queries, paired with the policy the run began with."""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop
from functools import partial
from typing import Any

import numpy as np

from agentcore_site.lib.statistics import wilson_interval
from experiences.rollouts.rewards import Reward
from training.algorithm.arrays import FloatArray
from training.algorithm.inference import paired_difference, per_query
from training.trainer.play import SELECTION_STREAM, Played, play
from training.trainer.setup import Check, SelectionReport, TrainerSetup
from training.trainer.state import TrainerState

SEARCH = 1  # the iteration in the keys of a search's rollouts: its queries have numbers of their own
EARLY_STOPPED = "early_stopped"  # a run's ``stop_reason``
RESAMPLES = 1_999  # signs, for a p-value that is looked at, not reported


def played_on_selection(
    loop: AbstractEventLoop,
    setup: TrainerSetup,
    chooser: Any,
    reward: Reward,
    check: Check,
    *,
    at: int,
    first: int = 0,
    samples: int | None = None,
    searching: bool = False,
) -> Played:
    """``samples`` rollouts (None: those of one look) of each selection query, numbered from ``first`` on, with the same
    random numbers for every policy; ``searching``: of each query of the search instead. ``at`` is the iteration after
    which they are played: no two looks may share the names of their paid calls."""
    temperature, purpose = setup.config.eval_temperature, f"selection.{at}"
    playing = play(
        setup.search_queries if searching else setup.selection,
        setup.look_samples if samples is None else samples,
        setup.plan(chooser, reward, check, temperature=temperature, purpose=purpose, stream=SELECTION_STREAM),
        iteration=SEARCH if searching else 0,
        first=first,
        kept=setup.look_kept(at),
        keep=partial(setup.look_keep, at),
    )
    return loop.run_until_complete(playing)


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


def stop_on_plateau(setup: TrainerSetup, state: TrainerState, played: Played) -> None:
    """Counts a look that was no better than the ones before; after enough of them the run stops, where it may."""
    plateau = state.stopper.update(played.success_rate, standard_error(played.success))
    if plateau and setup.config.early_stopping.enabled:
        state.stop_reason = state.stop_reason or EARLY_STOPPED


def standard_error(success: FloatArray) -> float:
    """Standard error of the mean over queries; success is (n, k)."""
    rates = per_query(success)
    return float(np.std(rates, ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else 0.0
