"""A causal language model of transformers as the engine uses it: hidden values of trees, and their log-probabilities.

Logits of real vocabularies take most of an update's memory, so the head only sees the places that are needed, some at a
time. Where a model's head or attention is of another kind, its own logits are taken, and nothing is shared: which it is
is found by trying both ways on a few tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers import DynamicCache

from training.weights.engine import BadInput
from training.weights.token_tree import TokenTree

SAME: Final = 1e-3  # relative difference of two ways to compute a model's logits; bfloat16 has its own
AUTO: Final = "auto"
COMPUTES_BFLOAT16: Final = ("avx512_bf16", "amx_bf16", "bf16")  # instructions of processors, as torch names them
TRIED: Final = ([5, 6, 7, 8, 9], [5, 6, 7, 10, 11, 12])


class CausalModel:
    """``module`` is transformers' model with its language head, in inference mode."""

    def __init__(self, module: Any, device: str) -> None:
        self.module, self.device = module, device
        self.config = module.config.get_text_config()
        self._decoder, self._head = module.get_decoder(), module.get_output_embeddings()
        self._bare = self._head is not None
        layers = getattr(self.config, "layer_types", None) or ["full_attention"]
        self.branches = set(layers) == {"full_attention"} and not getattr(self.config, "sliding_window", None)
        self._try()
        wide = sum(one.numel() for one in module.parameters()) / max(1, self.config.num_hidden_layers)
        # Weights of a layer, against the two products of query, key and value.
        self.linear = wide / (2 * self.config.hidden_size) if self.branches else 0.0

    @property
    def vocabulary(self) -> int:
        return int(self.config.vocab_size)

    def hidden(self, trees: Sequence[TokenTree], cache: Any = None) -> torch.Tensor:
        """(B, N, H) of trees that are padded to the longest."""
        longest = max(map(len, trees))
        ids = torch.zeros(len(trees), longest, dtype=torch.long)
        place, seen = torch.zeros_like(ids), torch.zeros_like(ids)
        for at, tree in enumerate(trees):
            ids[at, : len(tree)], place[at, : len(tree)] = torch.tensor(tree.ids), torch.tensor(tree.depth)
            seen[at, : len(tree)] = 1
        mask: torch.Tensor | None = seen
        if any(tree.branches for tree in trees):
            mask = self._blocks(trees, longest)
        elif len(trees) == 1:
            mask = None
        return self.run(ids.to(self.device), place.to(self.device), mask, cache)

    def run(self, ids: torch.Tensor, place: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """Hidden values (B, N, H) before the head; logits (B, N, V) where the head can't be taken apart."""
        asked = {
            "input_ids": ids,
            "position_ids": place,
            "attention_mask": None if mask is None else mask.to(self.device),
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        found = self._decoder(**asked).last_hidden_state if self._bare else self.module(**asked).logits
        return found if isinstance(found, torch.Tensor) else torch.as_tensor(found)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(..., V) in float32."""
        return (self._head(hidden) if self._bare else hidden).float()

    def _blocks(self, trees: Sequence[TokenTree], longest: int) -> torch.Tensor:
        kind = self.module.dtype
        mask = torch.full((len(trees), 1, longest, longest), torch.finfo(kind).min, dtype=kind)
        for at, tree in enumerate(trees):
            mask[at, 0, : len(tree), : len(tree)].masked_fill_(torch.from_numpy(tree.mask()), 0.0)
        return mask

    @torch.no_grad()
    def _try(self) -> None:
        """Finds what of this model can be taken apart.

        Raises:
            BadInput: it has no cache of keys and values that a row of others can go on from.
        """
        rows = [[min(one, self.vocabulary - 1) for one in row] for row in TRIED]
        plain = [self.module(input_ids=torch.tensor([row], device=self.device)).logits[0].float() for row in rows]
        if self._bare:
            apart = self.logits(self.run(*_single(rows[1], self.device), None, None))[0]
            self._bare = self._same(apart, plain[1])
        if self.branches:
            tree = TokenTree()
            tree.add(0, rows[0], 0)
            tree.add(1, rows[1], 3)
            try:
                shared = self.logits(self.hidden([tree]))[0]
                pairs = zip(tree.paths, plain, strict=True)
                self.branches = all(self._same(shared[path], one) for path, one in pairs)
            except (RuntimeError, ValueError, TypeError):
                self.branches = False
        ids, place = _single(rows[1], self.device)
        cache = DynamicCache()
        self.run(ids[:, :-1], place[:, :-1], None, cache)
        kept = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
        last = self.logits(self.run(ids[:, -1:], place[:, -1:], torch.ones_like(ids), cache))[0, -1]
        if len(kept) != self.config.num_hidden_layers or not self._same(last, plain[1][-1]):
            raise BadInput(f"{type(self.module).__name__} does not go on from keys and values alone.")
        self.cache_bytes = sum(2 * layer.keys[0, :, 0].numel() * layer.keys.element_size() for layer in kept)

    def _same(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        allowed = SAME if self.module.dtype == torch.float32 else 0.1
        return float((one - other).abs().max()) <= allowed * float(other.abs().max())


def _single(row: Sequence[int], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([list(row)], device=device), torch.arange(len(row), device=device)[None]


def number_kind(asked: str, device: str) -> str:
    """The kind of number that a base's weights are kept in. "auto" takes bfloat16 where the processor computes it."""
    if asked not in ("", AUTO):
        return asked
    here = torch.cpu.get_capabilities() if asked == AUTO else {}
    return "bfloat16" if device == "cuda" or any(here.get(name) is True for name in COMPUTES_BFLOAT16) else "float32"
