"""Selection of the queries for the next iteration."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from training.algorithm.arrays import FloatArray

SAMPLING_STREAM = 2
PRIORITY_STREAM = 3
PRIORITY_FLOOR = 0.05  # so that solved kinds of questions are still visited, and forgetting is noticed


def draw_scenarios(pool: int, wanted: int, drawn: int, seed: int, taken: Collection[int] = ()) -> tuple[list[int], int]:
    """The next positions in a pool that is walked through in a new random order each round.

    ``drawn`` is how many draws were made before; the answer is (distinct positions outside ``taken``, draws made
    by now). A position whose turn comes again within one draw is passed over. Fewer than ``wanted`` come back only
    where the pool holds no more.
    """
    chosen: list[int] = []
    wanted = min(wanted, pool - len(taken))
    while len(chosen) < wanted:
        position = int(_order(pool, seed, drawn // pool)[drawn % pool])
        drawn += 1
        if position not in taken and position not in chosen:
            chosen.append(position)
    return chosen, drawn


def draw_prioritised(
    success: FloatArray, wanted: int, iteration: int, seed: int, taken: Collection[int] = ()
) -> list[int]:
    """``wanted`` distinct positions outside ``taken``, drawn one after the other with probability proportional to
    1 - success + a floor (by Gumbel keys: Efraimidis & Spirakis 2006). ``success`` is (pool,)."""
    rng = np.random.default_rng((PRIORITY_STREAM, seed, iteration, len(taken)))
    keys = np.log(1.0 - np.clip(success, 0.0, 1.0) + PRIORITY_FLOOR) + rng.gumbel(size=len(success))
    return [int(position) for position in np.argsort(-keys, kind="stable") if position not in taken][:wanted]


def _order(pool: int, seed: int, round_number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.random.default_rng((SAMPLING_STREAM, seed, round_number)).permutation(pool)
