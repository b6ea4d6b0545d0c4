"""A policy whose weights are its own: how a runtime knows which to ask for, and how they are learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from experiences.rollouts.captured import TokenRow


@dataclass(frozen=True, slots=True)
class Weights:
    """A state as a model server (``training.weights``) saved it, and its SHA-256; both empty: the base model."""

    state: bytes = b""
    digest: str = ""


def weights_of(policy: Any) -> Weights | None:
    """The weights that a policy brings; None where it has none of its own, or still has the base model's."""
    found = getattr(policy, "weights", None)
    return found if isinstance(found, Weights) and found.digest else None


class WeightsTrainer(Protocol):
    """Learns weights at a model server. Every call is paid for; each may raise ``Halted``."""

    async def open(self, start: Weights, *, rank: int, seed: int) -> str:
        """A model of its own to be trained, which begins with ``start``; its name."""

    async def close(self, model: str) -> Weights:
        """Its weights, with optimiser and random state; the model itself is given up."""

    async def logprobs(self, weights: Weights | str, rows: Sequence[TokenRow]) -> list[list[float]]:
        """Of each sampled token given those before, (T,) a row, under weights or a model that is trained; others may
        be 0."""

    async def forward_backward(self, model: str, rows: Sequence[TokenRow], pulls: Sequence[Sequence[float]]) -> None:
        """Adds the gradient of sum(pull * log-probability); ``pulls`` is (T,) a row."""

    async def optim_step(self, model: str, adam: Mapping[str, float]) -> dict[str, float]:
        """Moves the weights; its figures, "grad_norm" among them, and "skipped" where it was not finite."""
