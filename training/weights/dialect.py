"""Rows of tokens as the Tinker API sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

WEIGHTED_ONLY: Final = "weighted_only"  # of ``loss_fn_config`` at our own server: other targets need no log-probability


def datum(ids: Sequence[int], weights: Sequence[float] | None = None) -> dict[str, Any]:
    """A row: all tokens but the last as input, and all but the first, each with its weight (None: 0), as targets."""
    known = [0.0] * (len(ids) - 1) if weights is None else list(weights[1:])
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": list(ids[:-1])}]},
        "loss_fn_inputs": {"target_tokens": _array(list(ids[1:]), "int64"), "weights": _array(known, "float32")},
    }


def weighted(data: list[dict[str, Any]]) -> dict[str, Any]:
    """The input of a training call that needs the log-probabilities of targets with a weight only."""
    return {"data": data, "loss_fn": "cross_entropy", "loss_fn_config": {WEIGHTED_ONLY: 1.0}}


def logprobs_in(found: dict[str, Any]) -> list[list[float]]:
    """Of each token of each row in a result, 0 for the first."""
    return [[0.0, *map(float, output["logprobs"]["data"])] for output in found["loss_fn_outputs"]]


def _array(values: list[Any], kind: str) -> dict[str, Any]:
    return {"data": values, "dtype": kind, "shape": [len(values)]}
