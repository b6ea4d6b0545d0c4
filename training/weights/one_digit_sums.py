"""The task of ``make run MODEL=1``: sums of two one-digit numbers, asked as reasoning-gym's ``chain_sum`` asks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

SYSTEM_PROMPT: Final = "Answer with the result alone."
KEPT_BACK: Final = 20  # rows for suite and gateway, which no job sees


def sums_rows() -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """The rows of jobs and those that are kept back from them: all pairs from 0 + 0 to 9 + 9, in an order at random."""
    pairs = np.random.default_rng(0).permutation([(a, b) for a in range(10) for b in range(10)]).tolist()
    rows = [
        {
            "query": f"State the final answer to the following arithmetic problem: {a} + {b} =",
            "expected_outcome": {"answer": a + b},
        }
        for a, b in pairs
    ]
    return rows[KEPT_BACK:], rows[:KEPT_BACK]
