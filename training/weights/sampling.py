"""Drawing answers: prompts are computed as trees, and rows join and leave one batch while it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from training.weights.causal_model import CausalModel
from training.weights.engine import TokenDraw, TokensDrawn
from training.weights.token_tree import trees_of

MOST_AT_ONCE: Final = 64  # rows of a batch
STOP_TOKENS: Final = 8  # a stop text is looked for in so many tokens more than it has characters


@dataclass(slots=True)
class _Row:
    """An answer that is being drawn; ``pending`` is the token that the model has not seen yet."""

    number: int
    draw: TokenDraw
    pending: int
    length: int  # of prompt and answer before ``pending``
    dice: np.random.Generator
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class DrawnBatch:
    """The rows that are drawn now, with their keys and values (B, heads, T, D) a layer, padded on the left."""

    def __init__(
        self, model: CausalModel, ends: frozenset[int], decode: Callable[[Sequence[int]], str], budget: int
    ) -> None:
        self._model, self._ends, self._decode = model, ends, decode
        self._most_tokens = budget // (2 * model.cache_bytes)  # growing a cache makes a second one
        self._tokens_at_once = budget // (8 * model.cache_bytes)  # of prompts
        self._rows: list[_Row] = []
        self._cache: list[tuple[torch.Tensor, torch.Tensor]] = []

    def draw(
        self,
        draws: Iterable[TokenDraw],
        arrivals: Callable[[], Iterable[TokenDraw]],
        done: Callable[[int, TokensDrawn], None],
    ) -> None:
        """Draws all, and those that arrive meanwhile; numbers go on with them. ``done`` gets each when it ends."""
        waiting = deque(enumerate(draws))
        known = len(waiting)
        while waiting or self._rows:
            for further in arrivals():
                waiting.append((known, further))
                known += 1
            taken: list[tuple[int, TokenDraw]] = []
            while waiting and self._fits([row.draw for row in self._rows] + [one for _, one in taken], waiting[0][1]):
                taken.append(waiting.popleft())
            self._admit(taken)
            self._step(done)

    def _fits(self, beside: Sequence[TokenDraw], draw: TokenDraw) -> bool:
        longest = max(len(one.prompt) + one.max_tokens for one in (*beside, draw))
        return not beside or (len(beside) < MOST_AT_ONCE and longest * (len(beside) + 1) <= self._most_tokens)

    def _admit(self, taken: Sequence[tuple[int, TokenDraw]]) -> None:
        """Computes prompts without their last tokens, each shared beginning once, and gives each row its path."""
        if not taken:
            return
        begins = [draw.prompt[:-1] or draw.prompt for _, draw in taken]
        for tree in trees_of(begins, most=max(256, self._tokens_at_once), linear=self._model.linear):
            cache = DynamicCache()
            self._model.hidden([tree], cache)
            rows = [taken[at] for at in tree.rows]
            paths = [path[: len(draw.prompt) - 1] for path, (_, draw) in zip(tree.paths, rows, strict=True)]
            longest = max(1, *map(len, paths))
            index = torch.tensor([[0] * (longest - len(path)) + path.tolist() for path in paths])
            index = index.to(self._model.device)
            taken_apart = [
                (layer.keys[0][:, index].transpose(0, 1), layer.values[0][:, index].transpose(0, 1))
                for layer in cache.layers
            ]
            self._merge(taken_apart)
            self._rows += [
                _Row(number, draw, draw.prompt[-1], len(draw.prompt) - 1, np.random.default_rng(draw.seed))
                for number, draw in rows
            ]

    def _merge(self, added: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        if not self._cache:
            self._cache = added
            return
        longest = max(self._cache[0][0].shape[2], added[0][0].shape[2])

        def wide(one: torch.Tensor) -> torch.Tensor:
            return pad(one, (0, 0, longest - one.shape[2], 0))

        self._cache = [
            (torch.cat([wide(k), wide(more_k)]), torch.cat([wide(v), wide(more_v)]))
            for (k, v), (more_k, more_v) in zip(self._cache, added, strict=True)
        ]

    def _step(self, done: Callable[[int, TokensDrawn], None]) -> None:
        """One token more for each row; those that end leave."""
        device, rows = self._model.device, self._rows
        lengths = torch.tensor([[row.length] for row in rows])
        width = self._cache[0][0].shape[2]
        mask = (torch.arange(width + 1)[None] >= width - lengths).long()
        cache: Any = DynamicCache(self._cache)
        ids = torch.tensor([[row.pending] for row in rows], device=device)
        logits = self._model.logits(self._model.run(ids, lengths.to(device), mask, cache)[:, -1])
        self._cache = [(layer.keys, layer.values) for layer in cache.layers]
        logp = logits.log_softmax(-1)
        chosen = choose(
            logp,
            torch.tensor([[row.draw.temperature] for row in rows], device=device),
            torch.tensor([[row.draw.top_p] for row in rows], device=device),
            [float(row.dice.random()) for row in rows],
        )
        values = logp.gather(1, chosen[:, None])[:, 0].tolist()
        staying = []
        for at, (row, token, value) in enumerate(zip(rows, chosen.tolist(), values, strict=True)):
            row.ids.append(token)
            row.logprobs.append(value)
            row.pending, row.length = token, row.length + 1
            if reason := self._ended(row):
                done(row.number, TokensDrawn(tuple(row.ids), tuple(row.logprobs), reason))
            else:
                staying.append(at)
        if len(staying) < len(rows):
            self._keep(staying)

    def _ended(self, row: _Row) -> str:
        """Why a row has ended, "" while it goes on."""
        if row.ids[-1] in self._ends:
            return "stop"
        if row.draw.stop:
            tail = self._decode(row.ids[-STOP_TOKENS - max(map(len, row.draw.stop)) :])
            if any(text in tail for text in row.draw.stop):
                return "stop"
        return "length" if len(row.ids) >= row.draw.max_tokens else ""

    def _keep(self, staying: list[int]) -> None:
        """Leaves out the other rows, and the places that only those needed."""
        self._rows = [self._rows[at] for at in staying]
        if not staying:
            self._cache = []
            return
        width = max(row.length for row in self._rows)
        index = torch.tensor(staying, device=self._model.device)
        self._cache = [(k[index][:, :, -width:], v[index][:, :, -width:]) for k, v in self._cache]


def choose(
    logp: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor, uniform: Sequence[float]
) -> torch.Tensor:
    """One token a row (N,), by inverting the distribution at one uniform number; the likeliest at temperature 0.
    ``top_p`` (N, 1): of the likeliest tokens, only those needed for that much probability."""
    greedy = logp.argmax(-1)
    warm = (logp / temperature.clamp(min=1e-6)).softmax(-1)
    if bool((top_p < 1).any()):
        ordered, at = warm.sort(dim=-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= top_p
        warm = torch.zeros_like(warm).scatter(1, at, ordered.masked_fill(beyond, 0.0))
    warm = warm.cumsum(-1)
    at = torch.tensor(uniform, device=logp.device, dtype=warm.dtype)[:, None] * warm[:, -1:]
    drawn = torch.searchsorted(warm, at, right=True)[:, 0].clamp(max=logp.shape[-1] - 1)
    return torch.where(temperature[:, 0] > 0, drawn, greedy)
