"""The engine over transformers: LoRA adapters or full copies of one causal language model, on a GPU where there is one.

One module holds the base model. The tensors of the weights that are asked for are put into it before each call, so that
any number of them share the base.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from training.policies.archive import MOST_UNPACKED, CorruptState, nested, pack, under, unpack
from training.weights.engine import BASE, Adam, BadInput, Datum, TokenDraw, TokensDrawn, UnknownWeights

MOST_LOADED: Final = 8  # weights beside the base; the one that was used longest ago makes room
TOKENS_AT_ONCE: Final = 16_384  # of a padded batch, forward and backward
FULL: Final = 0  # the rank that means a full copy

Tensors = dict[str, torch.Tensor]


@dataclass
class Slot:
    """Weights and their optimiser. ``first`` and ``second`` are Adam's moments after ``steps`` steps."""

    rank: int
    weights: Tensors
    first: Tensors = field(default_factory=dict)
    second: Tensors = field(default_factory=dict)
    gradient: Tensors = field(default_factory=dict)
    steps: int = 0


class TorchEngine:
    """``folder`` is a model as ``save_pretrained`` writes it; nothing is fetched."""

    def __init__(self, folder: Path, *, device: str = "", most_loaded: int = MOST_LOADED) -> None:
        from transformers import AutoModelForCausalLM

        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind = torch.bfloat16 if self.device == "cuda" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=kind)
        self._model = model.to(self.device).eval().requires_grad_(False)
        self._adapted: dict[int, tuple[Any, Tensors]] = {}  # by rank: the module with adapters, and its parameters
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._most, self.context = most_loaded, int(self._model.config.max_position_embeddings)
        ends = self._model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self._full = {name: one.data for name, one in self._model.named_parameters()}  # the base's own tensors

    # -- which weights ---------------------------------------------------------------------------------------------

    def create(self, name: str, lora_rank: int, seed: int) -> None:
        if lora_rank == FULL:
            self._put(name, Slot(FULL, {at: one.clone() for at, one in self._full.items()}))
            return
        _, parameters = self._module(lora_rank)
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for at, one in parameters.items():  # B is 0, so that the product is; A as peft draws it (Kaiming, a = sqrt 5)
            bound = 1.0 / one.shape[-1] ** 0.5 if "lora_A" in at else 0.0
            drawn = (torch.rand(one.shape, generator=generator) * 2 - 1) * bound
            weights[at] = drawn.to(one.device, one.dtype)
        self._put(name, Slot(lora_rank, weights))

    def load(self, name: str, state: bytes) -> None:
        try:
            stored = unpack(state, most=MOST_UNPACKED)
            rank, steps = int(stored["rank"]), int(stored["steps"])
            wanted = self._full if rank == FULL else self._module(rank)[1]
            parts = [self._tensors(under(part, stored), wanted) for part in ("weights", "first", "second")]
        except (CorruptState, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"These weights do not fit this model: {error}") from error
        if parts[0].keys() != wanted.keys() or not parts[1].keys() == parts[2].keys():
            raise BadInput("These weights do not fit this model: some of its tensors are missing.")
        weights, first, second = parts
        self._put(name, Slot(rank, weights, first, second, steps=steps))

    def save(self, name: str) -> bytes:
        slot = self._slot(name)
        state: dict[str, Any] = {"rank": slot.rank, "steps": slot.steps}
        for part, tensors in (("weights", slot.weights), ("first", slot.first), ("second", slot.second)):
            state |= nested(part, {at: one.float().cpu().numpy() for at, one in tensors.items()})
        return pack(state)

    def drop(self, name: str) -> None:
        self._slots.pop(name, None)

    def loaded(self, name: str) -> bool:
        return name == BASE or name in self._slots

    def describe(self) -> dict[str, Any]:
        count = sum(one.numel() for one in self._full.values())
        return {"engine": "torch", "device": self.device, "parameters": count, "loaded": list(self._slots)}

    # -- what is asked of them -------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(self, name: str, draws: Sequence[TokenDraw]) -> list[TokensDrawn]:
        for draw in draws:
            if not draw.prompt or len(draw.prompt) + draw.max_tokens > self.context:
                raise BadInput(f"Prompt and answer have to fit {self.context} tokens; the prompt has some.")
        with self._holding(name) as model:
            return self._sampled(model, draws) if draws else []

    @torch.no_grad()
    def logprobs(self, name: str, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        with self._holding(name) as model:
            return [one.tolist() for batch in self._batches(rows) for one in self._forward(model, batch)]

    def forward_backward(self, name: str, data: Sequence[Datum]) -> list[list[float]]:
        slot = self._slot(name)
        found: list[list[float]] = []
        with self._holding(name, learning=True) as model:
            weights = iter(data)
            for batch in self._batches([datum.ids for datum in data]):
                logp = self._forward(model, batch)
                loss = torch.zeros((), device=self.device)
                for one in logp:
                    wanted = torch.tensor(next(weights).weights, device=self.device)[1:]
                    loss = loss - (one[1:] * wanted).sum()
                loss.backward()  # type: ignore[no-untyped-call]
                found += [one.tolist() for one in logp]
            for at, parameter in self._parameters(slot).items():
                if parameter.grad is not None:
                    slot.gradient[at] = slot.gradient[at] + parameter.grad if at in slot.gradient else parameter.grad
                    parameter.grad = None
        return found

    @torch.no_grad()
    def optim_step(self, name: str, adam: Adam) -> dict[str, float]:
        """AdamW with decoupled decay, as torch computes it."""
        slot = self._slot(name)
        gradient, slot.gradient = slot.gradient, {}
        norm = float(torch.stack([one.float().norm() for one in gradient.values()] or [torch.zeros(())]).norm())
        if not np.isfinite(norm):
            return {"grad_norm": 0.0, "skipped": 1.0}
        scale = min(1.0, adam.grad_clip_norm / (norm + 1e-6)) if adam.grad_clip_norm else 1.0
        slot.steps += 1
        bias1, bias2 = 1 - adam.beta1**slot.steps, 1 - adam.beta2**slot.steps
        for at, g in gradient.items():
            g = g.float() * scale
            weight = slot.weights[at]
            first = slot.first[at] = slot.first.get(at, torch.zeros_like(g)) * adam.beta1 + g * (1 - adam.beta1)
            second = slot.second[at] = slot.second.get(at, torch.zeros_like(g)) * adam.beta2 + g * g * (1 - adam.beta2)
            step = first / bias1 / ((second / bias2).sqrt() + adam.eps)
            slot.weights[at] = (weight * (1 - adam.learning_rate * adam.weight_decay) - adam.learning_rate * step).to(
                weight.dtype
            )
        return {"grad_norm": norm}

    # -- inside ----------------------------------------------------------------------------------------------------

    def _sampled(self, model: Any, draws: Sequence[TokenDraw]) -> list[TokensDrawn]:
        """All draws in one batch, with a cache of keys and values. A row's own numbers decide what it draws, whichever
        rows are beside it."""
        longest = max(len(draw.prompt) for draw in draws)
        ids = torch.tensor([[0] * (longest - len(d.prompt)) + list(d.prompt) for d in draws], device=self.device)
        mask = torch.tensor([[0] * (longest - len(d.prompt)) + [1] * len(d.prompt) for d in draws], device=self.device)
        cache: Any = None
        drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in draws]
        dice = [np.random.default_rng(draw.seed) for draw in draws]
        temperature = torch.tensor([[draw.temperature] for draw in draws], device=self.device)
        going = [draw.max_tokens > 0 for draw in draws]
        while any(going):
            place = mask.cumsum(-1)[:, -ids.shape[1] :] - 1
            answered = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=place.clamp(min=0),
                past_key_values=cache,
                use_cache=True,
            )
            cache = answered.past_key_values
            logp = answered.logits[:, -1].float().log_softmax(-1)
            chosen = _choose(logp, temperature, [float(one.random()) for one in dice])
            for row, (token, value) in enumerate(
                zip(chosen.tolist(), logp.gather(1, chosen[:, None])[:, 0].tolist(), strict=True)
            ):
                if going[row]:
                    drawn[row][0].append(token)
                    drawn[row][1].append(value)
                    going[row] = token not in self._ends and len(drawn[row][0]) < draws[row].max_tokens
            ids = chosen[:, None]
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        return [
            TokensDrawn(tuple(ids), tuple(values), "stop" if ids and ids[-1] in self._ends else "length")
            for ids, values in drawn
        ]

    def _forward(self, model: Any, rows: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Log-probabilities (T,) of each row's tokens, 0 for the first."""
        longest = max(map(len, rows))
        ids = torch.tensor([list(row) + [0] * (longest - len(row)) for row in rows], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self.device)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        logp = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
        whole = torch.cat([torch.zeros_like(logp[:, :1]), logp], dim=1)
        return [whole[at, : len(row)] for at, row in enumerate(rows)]

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
        batch: list[Sequence[int]] = []
        vocabulary = int(self._model.config.vocab_size)
        for row in rows:
            if not 0 < len(row) <= self.context or not all(0 <= one < vocabulary for one in row):
                raise BadInput(f"A row has 1 to {self.context} tokens, each below {vocabulary}.")
            longest = max([len(row), *map(len, batch)])
            if batch and longest * (len(batch) + 1) > TOKENS_AT_ONCE:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _module(self, rank: int) -> tuple[Any, Tensors]:
        """The model with adapters of this rank in all its linear layers, and their parameters by name."""
        if rank not in self._adapted:
            if not 1 <= rank <= 256:
                raise BadInput(f"lora_rank is 0 (a full copy) to 256; got {rank}.")
            if self._adapted:
                raise BadInput(f"This model server has adapters of rank {next(iter(self._adapted))}; got {rank}.")
            from peft import LoraConfig, get_peft_model

            config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
            module = get_peft_model(self._model, config).eval()
            module.requires_grad_(False)
            parameters = {at: one for at, one in module.named_parameters() if "lora_" in at}
            self._adapted[rank] = module, parameters
        return self._adapted[rank]

    def _parameters(self, slot: Slot) -> dict[str, Any]:
        if slot.rank != FULL:
            return self._module(slot.rank)[1]
        own = {at.replace(".base_layer", ""): one for at, one in self._model.named_parameters() if "lora_" not in at}
        return own

    @contextmanager
    def _holding(self, name: str, *, learning: bool = False) -> Iterator[Any]:
        """The model with these weights in it. Without a slot of its own the base's are: adapters are 0 then."""
        slot = None if name == BASE else self._slot(name)
        adapters = {} if not self._adapted else next(iter(self._adapted.values()))[1]
        own = {} if slot is None else self._parameters(slot)
        if slot is None or slot.rank == FULL:
            for adapter in adapters.values():
                adapter.data = torch.zeros_like(adapter.data)
        for at, parameter in own.items():
            assert slot is not None
            parameter.data = slot.weights[at]
            parameter.requires_grad_(learning)
        try:
            yield self._model
        finally:
            for parameter in own.values():
                parameter.requires_grad_(False)
            if slot is not None and slot.rank == FULL:
                for at, parameter in own.items():
                    parameter.data = self._full[at]

    def _put(self, name: str, slot: Slot) -> None:
        if name == BASE:
            raise BadInput("The base model's own weights stay as they are.")
        self._slots[name] = slot
        self._slots.move_to_end(name)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)

    def _slot(self, name: str) -> Slot:
        if name not in self._slots:
            raise UnknownWeights(f"No weights named {name!r} are loaded.")
        self._slots.move_to_end(name)
        return self._slots[name]

    def _tensors(self, arrays: dict[str, Any], wanted: Tensors) -> Tensors:
        found = {}
        for at, array in arrays.items():
            if at not in wanted or tuple(array.shape) != tuple(wanted[at].shape) or not np.isfinite(array).all():
                raise ValueError(f"{at} has another shape, or numbers that are not finite")
            found[at] = torch.from_numpy(np.array(array)).to(wanted[at].device, wanted[at].dtype)
        return found


def _choose(logp: torch.Tensor, temperature: torch.Tensor, uniform: Sequence[float]) -> torch.Tensor:
    """One token a row (N,), by inverting the distribution at one uniform number; the likeliest at temperature 0."""
    greedy = logp.argmax(-1)
    warm = (logp / temperature.clamp(min=1e-6)).softmax(-1).cumsum(-1)
    at = torch.tensor(uniform, device=logp.device, dtype=warm.dtype)[:, None] * warm[:, -1:]
    drawn = torch.searchsorted(warm, at, right=True)[:, 0].clamp(max=logp.shape[-1] - 1)
    return torch.where(temperature[:, 0] > 0, drawn, greedy)
