"""Memory of updates: within the budget for a real vocabulary, and the same after many iterations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra [weights] is not installed")

from tests.support.memory import measured, peak_of  # noqa: E402
from training.weights.engine import BASE, Adam, Datum, TokenDraw  # noqa: E402
from training.weights.torch_engine import TorchEngine  # noqa: E402

pytestmark = [pytest.mark.slow(reason="torch takes seconds to import"), measured]
VOCABULARY, TOKENS = 151_936, 16_384  # those of Qwen3; logits of all would take 10 GB
MB = 1 << 20


@pytest.mark.thorough(reason="a head of a real vocabulary is computed for thousands of tokens")
def test_an_update_of_a_real_vocabulary_keeps_to_its_memory(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen3Config(**sizes, num_key_value_heads=1, head_dim=8, vocab_size=VOCABULARY, tie_word_embeddings=True)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    budget = 200 * MB
    engine = TorchEngine(tmp_path, device="cpu", memory=budget)
    dice = np.random.default_rng(1)
    groups = [tuple(dice.integers(5, VOCABULARY, 64).tolist()) for _ in range(8)]
    rows = [prompt + tuple(dice.integers(5, VOCABULARY, 192).tolist()) for prompt in groups for _ in range(8)]
    assert sum(map(len, rows)) == TOKENS
    data = [Datum(row, (0.0,) * 64 + (0.01,) * 192) for row in rows]
    engine.create("learns", 8, 1)
    engine.forward_backward("learns", data[:1], weighted_only=True)  # claims what is kept once
    logp: list[list[float]] = []

    def update() -> None:
        logp.extend(engine.forward_backward("learns", data, weighted_only=True))
        engine.optim_step("learns", Adam(0.001))

    assert peak_of(update) < budget
    assert all(value < 0 for row in logp for value in row[64:])


@pytest.mark.thorough(reason="two hundred iterations are made")
def test_memory_does_not_grow_over_two_hundred_iterations(model_folder: Path) -> None:
    engine, states = TorchEngine(model_folder, device="cpu"), [b""]

    def iterations(first: int, last: int) -> None:
        for iteration in range(first, last):
            draws = [TokenDraw(tuple(range(10 + at, 22 + at)), 8, seed=100 * iteration + at) for at in range(8)]
            drawn = engine.sample(f"sampled {iteration - 1}" if iteration else BASE, draws)
            engine.create("learns", 4, 1)
            if iteration:
                engine.load("learns", states.pop())
            pairs = zip(draws, drawn, strict=True)
            data = [Datum(one.prompt + found.ids, (0.1,) * (len(one.prompt) + len(found.ids))) for one, found in pairs]
            engine.forward_backward("learns", data)
            engine.optim_step("learns", Adam(0.001))
            states.append(engine.save("learns"))
            engine.load(f"sampled {iteration}", states[-1])

    iterations(0, 50)
    assert peak_of(lambda: iterations(50, 200)) < 8 * MB
