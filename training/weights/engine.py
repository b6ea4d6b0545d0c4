"""Engine of a model server: sampling, log-probabilities, gradients and Adam's steps on one base model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

BASE: Final = "base"  # the weights of the base model itself, which are always there


class UnknownWeights(LookupError):
    """No weights of that name are loaded: send them again."""


class BadInput(ValueError):
    """The request can't be carried out as it is; the message says why."""


@dataclass(frozen=True, slots=True)
class TokenDraw:
    """One answer that is asked for: after ``prompt``, at most ``max_tokens`` tokens. ``temperature`` 0 takes the
    likeliest; ``top_p`` leaves only the likeliest tokens of that probability together; ``seed`` makes the draw
    repeatable. The answer ends with the token that completes a text of ``stop``."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokensDrawn:
    """An answer's tokens, the log-probability of each under the model at temperature 1, and why it ended: "stop" or
    "length". The end token is one of them."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Datum:
    """A row of tokens with the weight of each: its loss is -sum(weight * log-probability). Both are (T,); the first
    token has no log-probability, and its weight counts for nothing."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Adam:
    """One step's settings, as the Tinker API names them. ``grad_clip_norm`` 0: no clipping."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class Engine(Protocol):
    """Weights by name. ``BASE`` is always there; others are made by ``create`` or ``load`` and go when there are too
    many, so that a caller keeps what ``save`` gave. All methods but the constructor may raise ``UnknownWeights`` and
    ``BadInput``; none is called while another runs."""

    context: int  # tokens of prompt and answer together

    def create(self, name: str, lora_rank: int, seed: int) -> None:
        """New weights that answer as the base model does: an adapter of that rank, or a full copy with rank 0."""

    def load(self, name: str, state: bytes) -> None:
        """Restores the value of ``save``, optimiser included."""

    def save(self, name: str) -> bytes:
        """Weights, optimiser and random state; equal weights give equal bytes."""

    def drop(self, name: str) -> None: ...

    def loaded(self, name: str) -> bool: ...

    def check(self, draw: TokenDraw) -> None:
        """Raises BadInput for an answer that can't be drawn here, before it is in a batch with others."""

    def sample(
        self,
        name: str,
        draws: Sequence[TokenDraw],
        arrivals: Callable[[], Iterable[TokenDraw]] = tuple,
        done: Callable[[int, TokensDrawn], None] = lambda number, drawn: None,
    ) -> list[TokensDrawn]:
        """All answers, also those that ``arrivals`` gives while others are drawn; ``done`` gets each as it ends, by its
        number in that order."""

    def logprobs(
        self, name: str, rows: Sequence[Sequence[int]], needed: Sequence[Sequence[float]] | None = None
    ) -> list[list[float]]:
        """Of each token of each row given those before, 0 for the first, at temperature 1. Where ``needed`` is 0 they
        need not be computed, and may be 0."""

    def forward_backward(self, name: str, data: Sequence[Datum], *, weighted_only: bool = False) -> list[list[float]]:
        """Adds the gradient of the summed loss to what has gathered; the log-probabilities as ``logprobs`` gives, with
        ``weighted_only`` where there is a weight."""

    def optim_step(self, name: str, adam: Adam) -> dict[str, float]:
        """Moves the weights by the gathered gradient and forgets it. "grad_norm" is its length before clipping; a
        gradient that is not finite moves nothing and says so by "skipped"."""

    def describe(self) -> dict[str, Any]:
        """Description for people."""
