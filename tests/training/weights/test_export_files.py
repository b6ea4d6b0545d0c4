"""Exported weights are loaded by peft and by transformers, and answer as they do at the model server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

torch = pytest.importorskip("torch", reason="the extra [weights] is not installed")

from training.policies.archive import nested, pack  # noqa: E402
from training.policies.weights import WeightsPolicy, weights_from  # noqa: E402
from training.weights.engine import Adam, Datum  # noqa: E402
from training.weights.torch_engine import TorchEngine  # noqa: E402

pytestmark = pytest.mark.slow(reason="torch takes seconds to import")

ROW = tuple(range(20, 40))


def learned(model_folder: Path, rank: int, folder: Path) -> tuple[Path, list[float]]:
    """A checkpoint's file of weights that moved, and their log-probabilities."""
    engine = TorchEngine(model_folder, device="cpu")
    engine.create("learns", rank, seed=1)
    for _ in range(3):
        engine.forward_backward("learns", [Datum(ROW, (1.0,) * len(ROW))])
        engine.optim_step("learns", Adam(0.01))
    policy = WeightsPolicy(weights_from(engine.save("learns")))
    file = folder / "checkpoint.npz"
    file.write_bytes(pack({"iteration": 3, "format": 1} | nested("policy", policy.state_dict())))
    return file, engine.logprobs("learns", [ROW])[0]


def logprobs(model: Any) -> list[float]:
    ids = torch.tensor([ROW])
    with torch.no_grad():
        logp = model(ids).logits.log_softmax(-1)
    return [0.0, *logp[0, :-1].gather(1, ids[0, 1:, None])[:, 0].tolist()]


def base_of(model_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


def test_peft_loads_the_adapter(model_folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    file, wanted = learned(model_folder, 4, tmp_path)
    call_command("export_weights", str(file), str(tmp_path / "adapter"), model=model_folder)
    assert logprobs(base_of(model_folder)) != pytest.approx(wanted, abs=0.1)
    assert logprobs(PeftModel.from_pretrained(base_of(model_folder), tmp_path / "adapter")) == pytest.approx(
        wanted, abs=1e-4
    )
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    layers = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8)
    assert config["target_modules"] == layers and config["base_model_name_or_path"] == str(model_folder)


@pytest.mark.parametrize("rank", [4, 0])
def test_transformers_loads_the_whole_model(model_folder: Path, tmp_path: Path, rank: int) -> None:
    from transformers import AutoTokenizer

    file, wanted = learned(model_folder, rank, tmp_path)
    call_command("export_weights", str(file), str(tmp_path / "whole"), model=model_folder, merged=True)
    assert logprobs(base_of(tmp_path / "whole")) == pytest.approx(wanted, abs=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "whole").chat_template
    assert [one.name for one in (tmp_path / "whole").glob("*.safetensors")] == ["model.safetensors"]


def test_files_and_models_that_do_not_fit_are_refused_in_a_sentence(model_folder: Path, tmp_path: Path) -> None:
    from training.weights.random_model import random_model

    full, _ = learned(model_folder, 0, tmp_path)
    with pytest.raises(CommandError, match="no adapter"):
        call_command("export_weights", str(full), str(tmp_path / "a"))
    with pytest.raises(CommandError, match="another model"):
        other = random_model(tmp_path / "other", merges=20)
        call_command("export_weights", str(full), str(tmp_path / "b"), model=other, merged=True)
    with pytest.raises(CommandError, match="--model FOLDER"):
        call_command("export_weights", str(full), str(tmp_path / "c"), merged=True)
    with pytest.raises(CommandError, match="not empty"):
        call_command("export_weights", str(full), str(tmp_path))
    (tmp_path / "no.npz").write_bytes(b"no state")
    with pytest.raises(CommandError, match="can't be exported"):
        call_command("export_weights", str(tmp_path / "no.npz"), str(tmp_path / "d"))
    with pytest.raises(CommandError, match="can't be read"):
        call_command("export_weights", str(tmp_path / "nothing.npz"), str(tmp_path / "e"))
