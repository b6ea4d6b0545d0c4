"""The engine over transformers: LoRA adapters or full copies of one causal language model, on a GPU where there is one.

One module holds the base model. The tensors of the weights that are asked for are put into it before each call, so that
any number of them share the base.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from training.policies.archive import CorruptState
from training.weights.causal_model import CausalModel, number_kind
from training.weights.engine import BASE, Adam, BadInput, Datum, TokenDraw, TokensDrawn, UnknownWeights
from training.weights.sampling import DrawnBatch
from training.weights.slots import FULL, Slot, Tensors, loaded_slot
from training.weights.token_tree import TokenTree, batches_of, trees_of

MOST_LOADED: Final = 8  # weights beside the base; the one that was used longest ago makes room
MEMORY_MB: Final = 1_000  # what an update or a batch of answers may take beside the weights
TOKENS_AT_ONCE: Final = 4_096  # of a padded batch, where memory does not allow fewer
CHECKPOINTED: Final = 4  # times as many tokens fit where each layer is computed twice
MOST_NODES: Final = 2_048  # of a tree, whose mask has a number for each pair
MOST_RANK: Final = 256
TARGETS: Final = "all-linear"


class TorchEngine:
    """``folder`` is a model as ``save_pretrained`` writes it; nothing is fetched. ``memory``: bytes that an update or a
    batch of answers may take beside the weights. ``decode`` gives the text of tokens, for answers that stop at one.
    ``dtype`` "auto" is bfloat16 where the processor computes it. ``scratch``: the folder of its temporary files."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "",
        memory: int = MEMORY_MB << 20,
        decode: Callable[[Sequence[int]], str] = str,
        dtype: str = "",
        most_loaded: int = MOST_LOADED,
        scratch: Path | None = None,
    ) -> None:
        from transformers import AutoModelForCausalLM

        self.folder, self.memory, self._decode, self._scratch = folder, memory, decode, scratch
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind = number_kind(dtype, self.device)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=getattr(torch, kind))
        self._model = model.to(self.device).eval().requires_grad_(False)
        self._causal = CausalModel(self._model, self.device)
        self._peft: Any = None  # the model with adapters in it, once there are some
        self._adapted: dict[int, Tensors] = {}  # by rank: the parameters of its adapter
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._most, self.context = most_loaded, int(self._causal.config.max_position_embeddings)
        self._kept_bytes: dict[int, float] = {}  # by rank: what a token leaves for the backward pass
        ends = self._model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self._full = {name: one.data for name, one in self._model.named_parameters()}  # the base's own tensors

    # -- which weights ---------------------------------------------------------------------------------------------

    def create(self, name: str, lora_rank: int, seed: int) -> None:
        if lora_rank == FULL:
            self._put(name, Slot(FULL, {at: one.float().clone() for at, one in self._full.items()}))
            return
        parameters = self._adapter(lora_rank)
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for at, one in parameters.items():  # B is 0, so that the product is; A as peft draws it (Kaiming, a = sqrt 5)
            bound = 1.0 / one.shape[-1] ** 0.5 if "lora_A" in at else 0.0
            drawn = (torch.rand(one.shape, generator=generator) * 2 - 1) * bound
            weights[at] = drawn.to(one.device)
        self._put(name, Slot(lora_rank, weights))

    def load(self, name: str, state: bytes) -> None:
        try:
            slot = loaded_slot(state, lambda rank: self._full if rank == FULL else self._adapter(rank))
        except (CorruptState, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"These weights do not fit this model: {error}") from error
        slot.keep(state, self._scratch)
        self._put(name, slot)

    def save(self, name: str) -> bytes:
        return self._slot(name).state()

    def drop(self, name: str) -> None:
        self._slots.pop(name, None)
        self._forget_ranks()

    def loaded(self, name: str) -> bool:
        return name == BASE or name in self._slots

    def describe(self) -> dict[str, Any]:
        count = sum(one.numel() for one in self._full.values())
        return {"engine": "torch", "device": self.device, "parameters": count, "loaded": list(self._slots)}

    # -- what is asked of them -------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self,
        name: str,
        draws: Sequence[TokenDraw],
        arrivals: Callable[[], Iterable[TokenDraw]] = tuple,
        done: Callable[[int, TokensDrawn], None] = lambda number, drawn: None,
    ) -> list[TokensDrawn]:
        found: dict[int, TokensDrawn] = {}

        def ended(number: int, drawn: TokensDrawn) -> None:
            found[number] = drawn
            done(number, drawn)

        with self._holding(name):
            for draw in draws:
                self.check(draw)
            DrawnBatch(self._causal, self._ends, self._decode, self.memory).draw(draws, arrivals, ended)
        return [found[number] for number in sorted(found)]

    def check(self, draw: TokenDraw) -> None:
        size, vocabulary = len(draw.prompt) + draw.max_tokens, self._causal.vocabulary
        if not draw.prompt or draw.max_tokens < 1 or size > self.context:
            raise BadInput(f"Prompt and answer have to fit {self.context} tokens, and each has some.")
        if not all(0 <= one < vocabulary for one in draw.prompt):
            raise BadInput(f"A prompt's tokens are below {vocabulary}.")

    @torch.no_grad()
    def logprobs(
        self, name: str, rows: Sequence[Sequence[int]], needed: Sequence[Sequence[float]] | None = None
    ) -> list[list[float]]:
        found = [np.zeros(len(row), np.float32) for row in rows]
        with self._holding(name):
            for batch in self._batches(rows, TOKENS_AT_ONCE):
                nodes = Nodes(batch, rows, needed, needed)
                hidden = self._causal.hidden(batch).flatten(0, 1)[nodes.parents]
                parts = [self._logp(*part) for part in self._chunks(hidden, nodes)]
                nodes.spread(torch.cat(parts).tolist() if parts else [], found)
        return [one.tolist() for one in found]

    def forward_backward(self, name: str, data: Sequence[Datum], *, weighted_only: bool = False) -> list[list[float]]:
        slot = self._slot(name)
        rows, weights = [datum.ids for datum in data], [datum.weights for datum in data]
        found = [np.zeros(len(row), np.float32) for row in rows]
        with self._holding(name, learning=True):
            most = min(TOKENS_AT_ONCE, self._tokens_at_once(slot.rank))
            longest = max(map(len, rows), default=0)
            for batch in self._batches(rows, most, of_tree=most if longest <= most else CHECKPOINTED * most):
                nodes = Nodes(batch, rows, weights if weighted_only else None, weights)
                with self._checkpointing(len(batch[0]) > most):
                    nodes.spread(self._descend(batch, nodes), found)
            for at, parameter in self._parameters(slot).items():
                if parameter.grad is not None:
                    grad = parameter.grad.float()
                    slot.gradient[at] = slot.gradient[at] + grad if at in slot.gradient else grad
                    parameter.grad = None
        return [one.tolist() for one in found]

    def _descend(self, batch: Sequence[TokenTree], nodes: Nodes) -> list[float]:
        """Gathers the gradient of a batch. The head goes backward with each chunk, so that no two are held at once."""
        if not len(nodes.parents):
            return []
        hidden = self._causal.hidden(batch).flatten(0, 1)[nodes.parents]
        # What is kept of a chunk lies here already: a new small tensor between the large ones would be in the way of
        # the next chunk's, and the memory of all chunks would be taken.
        found, slopes, at = torch.empty(len(hidden)), torch.empty_like(hidden, requires_grad=False), 0
        for part, targets, weight in self._chunks(hidden.detach(), nodes):
            leaf = part.detach().requires_grad_(hidden.requires_grad)
            logp = self._logp(leaf, targets, weight)
            (-(logp * weight).sum()).backward()  # type: ignore[no-untyped-call]
            found[at : at + len(part)] = logp.detach()
            if leaf.grad is not None:
                slopes[at : at + len(part)] = leaf.grad
            at += len(part)
            del leaf, logp
        if hidden.requires_grad:
            hidden.backward(slopes)  # type: ignore[no-untyped-call]
        return list(found.tolist())

    def optim_step(self, name: str, adam: Adam) -> dict[str, float]:
        return self._slot(name).step(adam)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _logp(self, hidden: torch.Tensor, targets: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        """(M,) log-probabilities of ``targets`` behind the hidden values (M, H)."""
        logits = self._causal.logits(hidden)
        return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(-1)

    def _chunks(self, hidden: torch.Tensor, nodes: Nodes) -> Iterator[tuple[torch.Tensor, ...]]:
        """Hidden values, targets and weights of some nodes. Their logits, with slopes, fit a quarter of the memory."""
        size = max(1, self.memory // (4 * 24 * self._causal.vocabulary))
        targets, weights = (one.to(self.device) for one in (nodes.targets, nodes.weights))
        return zip(hidden.split(size), targets.split(size), weights.split(size), strict=True)

    def _batches(
        self, rows: Sequence[Sequence[int]], most: int, *, of_tree: int = MOST_NODES
    ) -> Iterator[list[TokenTree]]:
        """Batches of ``most`` tokens of trees of ``of_tree``: these may be larger, where rows themselves are."""
        vocabulary = self._causal.vocabulary
        for row in rows:
            if not 0 < len(row) <= self.context or not all(0 <= one < vocabulary for one in row):
                raise BadInput(f"A row has 1 to {self.context} tokens, each below {vocabulary}.")
        trees = trees_of(rows, most=min(of_tree, MOST_NODES), linear=self._causal.linear)
        return batches_of(list(trees), most)

    def _tokens_at_once(self, rank: int) -> int:
        """Tokens of which the backward pass fits half of the memory; what one takes is counted on a short row."""
        if rank not in self._kept_bytes:
            tree, kept = TokenTree(), dict[int, int]()
            tree.add(0, [0] * 64, 0)
            own = {one.data_ptr() for one in self._model.parameters()}

            def count(one: torch.Tensor) -> torch.Tensor:
                if one.data_ptr() not in own:
                    kept[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
                return one

            with torch.autograd.graph.saved_tensors_hooks(count, lambda one: one):
                self._causal.hidden([tree])
            self._kept_bytes[rank] = sum(kept.values()) / 64
        return int(self.memory / 2 / max(1.0, self._kept_bytes[rank]))

    @contextmanager
    def _checkpointing(self, wanted: bool) -> Iterator[None]:
        """Computes each layer again in the backward pass: for a row that is too long to keep all. Only the layers
        themselves are in training mode for it, so that nothing is dropped out."""
        layers = [one for one in self._model.modules() if wanted and isinstance(one, GradientCheckpointingLayer)]
        again = partial(checkpoint, use_reentrant=False)
        for layer in layers:
            layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, again
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.gradient_checkpointing = layer.training = False

    def _adapter(self, rank: int) -> Tensors:
        """The parameters by name of an adapter of this rank in all linear layers; it is made where there is none."""
        if rank not in self._adapted:
            if not 1 <= rank <= MOST_RANK:
                raise BadInput(f"lora_rank is 0 (a full copy) to {MOST_RANK}; got {rank}.")
            from peft import get_peft_model

            name, config = f"rank{rank}", lora_config(rank)
            if self._peft is None:
                self._peft = get_peft_model(self._model, config, adapter_name=name).eval()
            else:
                self._peft.add_adapter(name, config)
            self._peft.eval().requires_grad_(False)
            named = self._peft.named_parameters()
            # As peft names its first adapter: a state fits any engine of this model.
            self._adapted[rank] = {at.replace(f".{name}.", ".default."): one for at, one in named if f".{name}." in at}
        return self._adapted[rank]

    def _forget_ranks(self) -> None:
        """Unloads the adapters of ranks that no weights have any more."""
        held = {slot.rank for slot in self._slots.values()}
        for rank in [one for one in self._adapted if one not in held and len(self._adapted) > 1]:
            del self._adapted[rank]
            self._peft.set_adapter(f"rank{next(iter(self._adapted))}", inference_mode=True)
            self._peft.delete_adapter(f"rank{rank}")

    def _parameters(self, slot: Slot) -> Tensors:
        if slot.rank != FULL:
            return self._adapter(slot.rank)
        return {at.replace(".base_layer", ""): one for at, one in self._model.named_parameters() if "lora_" not in at}

    @contextmanager
    def _holding(self, name: str, *, learning: bool = False) -> Iterator[Any]:
        """The model with these weights in it."""
        slot = None if name == BASE else self._slot(name)
        own = {} if slot is None else self._parameters(slot)
        with ExitStack() as stack:
            if self._peft is not None and (slot is None or slot.rank == FULL):
                stack.enter_context(self._peft.disable_adapter())
            elif slot is not None and slot.rank != FULL:
                self._peft.set_adapter(f"rank{slot.rank}", inference_mode=True)
            for at, parameter in own.items():
                assert slot is not None
                parameter.data = slot.weights[at].to(parameter.dtype)
                parameter.requires_grad_(learning)
            try:
                yield self._model
            finally:
                for at, parameter in own.items():
                    parameter.requires_grad_(False)
                    if slot is not None and slot.rank == FULL:
                        parameter.data = self._full[at]

    def _put(self, name: str, slot: Slot) -> None:
        if name == BASE:
            raise BadInput("The base model's own weights stay as they are.")
        self._slots[name] = slot
        self._slots.move_to_end(name)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)
        self._forget_ranks()

    def _slot(self, name: str) -> Slot:
        if name not in self._slots:
            raise UnknownWeights(f"No weights named {name!r} are loaded.")
        self._slots.move_to_end(name)
        return self._slots[name]


class Nodes:
    """The nodes of a batch of trees whose log-probabilities are needed, M in all: where the hidden values before each
    are (``parents``), their tokens (``targets``), and the summed weights of the rows that go through each, all (M,)."""

    def __init__(
        self,
        batch: Sequence[TokenTree],
        rows: Sequence[Sequence[int]],
        needed: Sequence[Sequence[float]] | None,
        weights: Sequence[Sequence[float]] | None,
    ) -> None:
        self._batch, width = batch, len(batch[0])
        size = len(batch) * width
        wanted, summed = np.zeros(size, np.bool_), np.zeros(size, np.float32)
        parents, ids = np.full(size, -1), np.zeros(size, np.int64)
        for at, tree in enumerate(batch):
            start = at * width
            parents[start : start + len(tree)] = np.where(np.array(tree.parent) < 0, -1, np.array(tree.parent) + start)
            ids[start : start + len(tree)] = tree.ids
            for number, path in zip(tree.rows, tree.paths, strict=True):
                if weights is not None:
                    summed[start + path] += np.asarray(weights[number], np.float32)
                wanted[start + path] |= True if needed is None else np.asarray(needed[number]) != 0
        wanted &= parents >= 0
        self._places = np.flatnonzero(wanted)
        self.parents = torch.from_numpy(parents[self._places])
        self.targets, self.weights = torch.from_numpy(ids[self._places]), torch.from_numpy(summed[self._places])

    def spread(self, values: Sequence[float], found: Sequence[Any]) -> None:
        """Writes the nodes' values to the rows that go through them; what was not needed stays 0."""
        width = len(self._batch[0])
        of_node = np.zeros(len(self._batch) * width, np.float32)
        of_node[self._places] = values
        for at, tree in enumerate(self._batch):
            for number, path in zip(tree.rows, tree.paths, strict=True):
                found[number][:] = of_node[at * width + path]


def lora_config(rank: int) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS, task_type="CAUSAL_LM")
