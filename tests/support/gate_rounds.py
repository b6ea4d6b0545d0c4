"""Simulated rounds of a gate: candidates beside one current release, looked at after every query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evaluation.serving.gate.statistics import ALPHA, InterimAnalyses, statistics
from training.algorithm.sequential import BASE_LOGIT, BASE_SPREAD


class Round(NamedTuple):
    """``gain`` is the true mean difference of every candidate, in [-1, 1], and ``spread`` its standard deviation
    between queries; a candidate goes through once it is shown to be above ``least``."""

    gain: float = 0.0
    spread: float = 0.0
    least: float = 0.0
    candidates: int = 10
    queries: int = 120
    samples: int = 8


def promoted_after(world: Round, seed: int, shared_by: int | None = None) -> int | None:
    """After how many queries the first candidate goes through; None where none does. Success rates of the current
    release are logistic-normal over queries. ``shared_by``: so many candidates share the error, where that is more than
    are played."""
    rng = np.random.default_rng((41, seed))
    effect = np.clip(world.gain + world.spread * rng.standard_normal(world.queries), -1, 1)
    share = 1 / (1 + np.exp(-(BASE_LOGIT + BASE_SPREAD * rng.standard_normal(world.queries))))
    before = np.clip(-effect, 0, 1) + (1 - np.abs(effect)) * share  # so that the difference fits in
    current = rng.binomial(world.samples, before)
    shape = world.candidates, world.queries
    candidates = rng.binomial(world.samples, np.clip(before + effect, 0, 1), shape)
    differences = (candidates - current) / world.samples
    analyses = InterimAnalyses(world.queries, shared_by or world.candidates, ALPHA)
    for n in range(1, world.queries + 1):
        if (statistics(differences[:, :n] - world.least) >= analyses.critical(n)).any():
            return n
    return None
