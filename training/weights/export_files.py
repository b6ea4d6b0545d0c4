"""Learned weights as files of other programs: an adapter that peft and vLLM load, or a whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from training.policies.archive import MOST_UNPACKED, under, unpack
from training.weights.engine import BadInput

ADAPTER_FILE: Final = "adapter_model.safetensors"


def adapter_export(state: bytes, folder: Path, *, base: str = "") -> None:
    """Writes ``adapter_config.json`` and ``adapter_model.safetensors``, as peft does. ``base`` is the model's name or
    folder, for programs that load it by the adapter.

    Raises:
        BadInput: the state is a full copy, which has no adapter.
        CorruptState: it is no state of a model server.
    """
    from safetensors.torch import save_file

    from training.weights.torch_engine import lora_config

    rank, tensors = _weights(state)
    if not rank:
        raise BadInput("All weights were learned (LoRA rank 0), so there is no adapter. Export the whole model.")
    config = lora_config(rank)
    # vLLM wants names of layers where peft takes a word for all of them.
    config.target_modules = sorted({name.rsplit(".lora_", 1)[0].rpartition(".")[2] for name in tensors})
    config.base_model_name_or_path, config.inference_mode = base, True
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    # A peft file leaves the adapter's name out.
    named = {name.replace(".default.", "."): tensor for name, tensor in tensors.items()}
    save_file(named, folder / ADAPTER_FILE, metadata={"format": "pt"})


def model_export(state: bytes, model: Path, folder: Path) -> None:
    """Writes the base model in ``model`` with the learned weights in it, and its tokenizer, as ``save_pretrained``
    does.

    Raises:
        BadInput: the weights are those of another model.
        CorruptState: the state is none of a model server.
    """
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from training.weights.torch_engine import lora_config

    rank, tensors = _weights(state)
    whole: Any = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, dtype=torch.float32)
    if rank:
        whole = get_peft_model(whole, lora_config(rank))
    own = {name: one for name, one in whole.named_parameters() if not rank or ".lora_" in name}
    if {name: one.shape for name, one in own.items()} != {name: one.shape for name, one in tensors.items()}:
        raise BadInput(f"The weights are those of another model than {model.name}.")
    for name, parameter in own.items():
        parameter.data = tensors[name]
    if rank:
        whole = whole.merge_and_unload()
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model, local_files_only=True).save_pretrained(folder)


def _weights(state: bytes) -> tuple[int, dict[str, Any]]:
    """The rank (0: a full copy) and the tensors by name."""
    import torch

    stored = unpack(state, most=MOST_UNPACKED)
    return int(stored["rank"]), {at: torch.from_numpy(one.copy()) for at, one in under("weights", stored).items()}
