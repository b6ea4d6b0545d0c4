"""The task of the demo's pretrained model: sums of two one-digit numbers, asked as reasoning-gym asks them."""

from __future__ import annotations

from typing import Any, Final

SYSTEM_PROMPT: Final = "Answer with the result alone."


def sums_rows() -> list[dict[str, Any]]:
    """The rows of all pairs from 0 + 0 to 9 + 9."""
    return [
        {
            "query": f"State the final answer to the following arithmetic problem: {a} + {b} =",
            "expected_outcome": {"answer": a + b},
        }
        for a in range(10)
        for b in range(10)
    ]
