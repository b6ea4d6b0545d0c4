"""Weights of one name at an engine, with their optimiser."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import torch

from training.policies.archive import MOST_UNPACKED, nested, pack, under, unpack
from training.weights.engine import Adam

FULL: Final = 0  # the rank that means a full copy

Tensors = dict[str, torch.Tensor]


@dataclass
class Slot:
    """Weights and their optimiser, in float32. ``first`` and ``second`` are Adam's moments after ``steps`` steps.

    ``stored`` is the file of the state that was loaded, until a step changes the weights. The moments stay there: most
    weights that are loaded are only sampled from, and the moments take twice their memory."""

    rank: int
    weights: Tensors
    first: Tensors = field(default_factory=dict)
    second: Tensors = field(default_factory=dict)
    gradient: Tensors = field(default_factory=dict)
    steps: int = 0
    stored: IO[bytes] | None = None

    def keep(self, state: bytes, folder: Path | None) -> None:
        """Writes the state of these weights to a file without a name, which goes with the process."""
        self.stored = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- it lives as long as the slot
        self.stored.write(state)

    def state(self) -> bytes:
        if self.stored is not None:
            return _content(self.stored)
        state: dict[str, Any] = {"rank": self.rank, "steps": self.steps}
        for part, tensors in (("weights", self.weights), ("first", self.first), ("second", self.second)):
            state |= nested(part, {at: one.float().cpu().numpy() for at, one in tensors.items()})
        return pack(state)

    @torch.no_grad()
    def step(self, adam: Adam) -> dict[str, float]:
        """AdamW with decoupled decay, as torch computes it."""
        gradient, self.gradient = self.gradient, {}
        norm = float(torch.stack([one.float().norm() for one in gradient.values()] or [torch.zeros(())]).norm())
        if not np.isfinite(norm):
            return {"grad_norm": 0.0, "skipped": 1.0}
        scale = min(1.0, adam.grad_clip_norm / (norm + 1e-6)) if adam.grad_clip_norm else 1.0
        self._take_moments()
        self.steps += 1
        bias1, bias2 = 1 - adam.beta1**self.steps, 1 - adam.beta2**self.steps
        for at, g in gradient.items():
            g = g.float() * scale
            weight = self.weights[at]
            first = self.first[at] = self.first.get(at, torch.zeros_like(g)) * adam.beta1 + g * (1 - adam.beta1)
            second = self.second[at] = self.second.get(at, torch.zeros_like(g)) * adam.beta2 + g * g * (1 - adam.beta2)
            step = first / bias1 / ((second / bias2).sqrt() + adam.eps)
            self.weights[at] = (weight * (1 - adam.learning_rate * adam.weight_decay) - adam.learning_rate * step).to(
                weight.dtype
            )
        return {"grad_norm": norm}

    def _take_moments(self) -> None:
        if self.stored is None:
            return
        state = unpack(_content(self.stored))
        self.first, self.second = (_tensors(under(part, state), self.weights) for part in ("first", "second"))
        self.stored.close()
        self.stored = None


def loaded_slot(state: bytes, wanted_of: Callable[[int], Tensors]) -> Slot:
    """Weights of a state, and their moments left out once they are checked. ``wanted_of`` gives the tensors of a rank.

    Raises:
        CorruptState, KeyError, TypeError, ValueError: it is no state of this model.
    """
    stored = unpack(state, most=MOST_UNPACKED)
    rank, steps = int(stored["rank"]), int(stored["steps"])
    wanted = wanted_of(rank)
    weights, first, second = (_tensors(under(part, stored), wanted) for part in ("weights", "first", "second"))
    if weights.keys() != wanted.keys() or first.keys() != second.keys():
        raise ValueError("some of its tensors are missing")
    return Slot(rank, weights, steps=steps)


def _tensors(arrays: Mapping[str, Any], wanted: Tensors) -> Tensors:
    found = {}
    for at, array in arrays.items():
        if at not in wanted or tuple(array.shape) != tuple(wanted[at].shape) or not np.isfinite(array).all():
            raise ValueError(f"{at} has another shape, or numbers that are not finite")
        found[at] = torch.from_numpy(array).to(wanted[at].device, torch.float32)
    return found


def _content(stored: IO[bytes]) -> bytes:
    stored.seek(0)
    return stored.read()
