"""Optimisers on dictionaries of arrays, with state that can be stored and resumed bit for bit.

Adam (arXiv 1412.6980) and AdamW (arXiv 1711.05101) follow torch's update to the last term. Call ``step`` only
when there is a gradient to follow: momentum keeps moving on zero gradients
(docs/algorithms.md#optimisers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from training.algorithm.arrays import FloatArray

Arrays = dict[str, FloatArray]
OptimizerName = Literal["sgd", "adam", "adamw"]


class Optimizer(Protocol):
    """``step`` moves the parameters in place. ``state_dict`` is flat: arrays and numbers by name."""

    learning_rate: float

    def step(self, parameters: Arrays, gradients: Mapping[str, FloatArray]) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class SGD:
    """p -= lr * (g + weight_decay * p), with optional momentum (torch's form)."""

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    buffers: Arrays = field(default_factory=dict)

    def step(self, parameters: Arrays, gradients: Mapping[str, FloatArray]) -> None:
        for name, gradient in gradients.items():
            p = parameters[name]
            g = gradient + self.weight_decay * p if self.weight_decay else gradient
            if self.momentum:
                buffer = _fitted(self.buffers, name, p)
                buffer *= self.momentum
                buffer += g
                g = buffer
            p -= self.learning_rate * g

    def state_dict(self) -> dict[str, Any]:
        return {f"momentum.{name}": value.copy() for name, value in self.buffers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.buffers = _taken(state, "momentum.")


@dataclass(slots=True)
class AdamW:
    """Adam with bias correction; ``decoupled`` decay shrinks the parameters (AdamW), else it joins the gradient
    as L2 (torch's Adam)."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = True
    steps: int = 0
    first: Arrays = field(default_factory=dict)
    second: Arrays = field(default_factory=dict)

    def step(self, parameters: Arrays, gradients: Mapping[str, FloatArray]) -> None:
        self.steps += 1
        b1, b2 = self.betas
        correction1, correction2 = 1 - b1**self.steps, 1 - b2**self.steps
        for name, gradient in gradients.items():
            p = parameters[name]
            m, v = _fitted(self.first, name, p), _fitted(self.second, name, p)
            g = gradient
            if self.weight_decay and self.decoupled:
                p *= 1 - self.learning_rate * self.weight_decay
            elif self.weight_decay:
                g = gradient + self.weight_decay * p
            m *= b1
            m += (1 - b1) * g
            v *= b2
            v += (1 - b2) * g * g
            p -= (self.learning_rate / correction1) * m / (np.sqrt(v / correction2) + self.eps)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"steps": self.steps}
        state.update({f"first.{name}": value.copy() for name, value in self.first.items()})
        state.update({f"second.{name}": value.copy() for name, value in self.second.items()})
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        self.first, self.second = _taken(state, "first."), _taken(state, "second.")


def make_optimizer(name: OptimizerName, *, learning_rate: float, weight_decay: float = 0.0) -> Optimizer:
    """The optimiser called ``name``: plain SGD, Adam with L2, or AdamW with decoupled decay."""
    if name == "sgd":
        return SGD(learning_rate, weight_decay=weight_decay)
    return AdamW(learning_rate, weight_decay=weight_decay, decoupled=name == "adamw")


def global_norm(gradients: Mapping[str, FloatArray]) -> float:
    """Euclidean norm over all arrays together."""
    return float(np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values())))


def clip_by_global_norm(gradients: Mapping[str, FloatArray], max_norm: float) -> tuple[Arrays, float]:
    """(gradients scaled so that their joint norm is at most ``max_norm``, the norm before)."""
    norm = global_norm(gradients)
    if not norm > max_norm:
        return dict(gradients), norm
    scale = max_norm / (norm + 1e-6)  # torch's clip_grad_norm_ has the same 1e-6
    return {name: g * scale for name, g in gradients.items()}, norm


def _fitted(state: Arrays, name: str, parameter: FloatArray) -> FloatArray:
    """The state array of ``name``, grown by zero rows where the parameter got new rows since the last step
    (a row that never had a gradient has zero moments, so nothing is lost)."""
    value = state.get(name)
    if value is None:
        value = state[name] = np.zeros_like(parameter)
    elif value.shape != parameter.shape:
        grown = np.zeros_like(parameter)
        grown[: len(value)] = value
        value = state[name] = grown
    return value


def _taken(state: Mapping[str, Any], prefix: str) -> Arrays:
    return {
        key.removeprefix(prefix): np.array(value, dtype=np.float64)
        for key, value in state.items()
        if key.startswith(prefix)
    }
