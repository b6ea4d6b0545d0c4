"""Shared tokens are computed once, in bounded memory, and no figure changes by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra [weights] is not installed")

from training.weights import causal_model, sampling, torch_engine  # noqa: E402
from training.weights.engine import BASE, Adam, BadInput, Datum, TokenDraw, TokensDrawn  # noqa: E402
from training.weights.token_tree import TokenTree, batches_of, trees_of  # noqa: E402
from training.weights.torch_engine import TorchEngine  # noqa: E402

pytestmark = pytest.mark.slow(reason="torch takes seconds to import")


def conversations() -> list[tuple[int, ...]]:
    """Two groups of siblings, one of which goes on in turns, a row that is there twice, and one of its own."""
    dice = np.random.default_rng(3)

    def tokens(n: int) -> tuple[int, ...]:
        return tuple(dice.integers(5, 290, n).tolist())

    rows = []
    for turns in (1, 3):
        prompt = tokens(12)
        for _ in range(4):
            row = prompt + tokens(int(dice.integers(1, 6)))
            rows.append(row)
            for _ in range(turns - 1):
                row += tokens(4)
                rows.append(row)
    return [*rows, rows[2], tokens(9), (7,)]


ROWS = conversations()
WEIGHTS = [tuple((at > 5) * (0.1 + at % 3) * (-1) ** at for at in range(len(row))) for row in ROWS]
DATA = [Datum(row, weights) for row, weights in zip(ROWS, WEIGHTS, strict=True)]


@pytest.fixture
def engine(model_folder: Path) -> TorchEngine:
    return TorchEngine(model_folder, device="cpu")


def gradients(engine: TorchEngine, rank: int) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    engine.create("learning", rank, 1)
    if rank:  # B is 0 at first, and A has no gradient then
        for at, one in engine._slots["learning"].weights.items():
            engine._slots["learning"].weights[at] = one + 0.01
    return engine.forward_backward("learning", DATA), engine._slots["learning"].gradient


def test_a_tree_has_each_shared_beginning_once_and_a_token_sees_its_own_row_only() -> None:
    [tree, *others] = sorted(trees_of(ROWS, most=1_000, linear=4_000.0), key=len, reverse=True)
    assert sum(map(len, [tree, *others])) < 0.5 * sum(map(len, ROWS)) and tree.branches
    for one in [tree, *others]:
        mask = one.mask()
        for number, path in zip(one.rows, one.paths, strict=True):
            assert tuple(np.array(one.ids)[path]) == ROWS[number]
            assert [one.depth[at] for at in path] == list(range(len(path)))
            assert all(set(np.flatnonzero(mask[at])) == set(path[: place + 1]) for place, at in enumerate(path))
    assert sorted(number for one in [tree, *others] for number in one.rows) == list(range(len(ROWS)))


def test_rows_join_where_that_saves_work_and_room_is_left() -> None:
    long = [(1, *range(10 * n, 10 * n + 500)) for n in (1, 100)]
    assert len(list(trees_of(long, most=5_000, linear=4_000.0))) == 2  # a mask of 1,000 by 1,000 to save one token
    assert not any(tree.branches for tree in trees_of(ROWS, most=1_000, linear=0.0))
    assert max(map(len, trees_of(ROWS, most=20, linear=4_000.0))) <= max(20, *map(len, ROWS))
    trees = list(trees_of(ROWS, most=30, linear=4_000.0))
    assert all(len(batch) == 1 or len(batch[0]) * len(batch) <= 60 for batch in batches_of(trees, 60))


@pytest.mark.parametrize("rank", [0, 4])
def test_shared_prefixes_change_neither_log_probabilities_nor_gradients(engine: TorchEngine, rank: int) -> None:
    shared_logp, shared = gradients(engine, rank)
    assert engine._causal.linear > 0
    engine._causal.linear = 0.0
    plain_logp, plain = gradients(engine, rank)
    assert all(a == pytest.approx(b, abs=1e-5) for a, b in zip(shared_logp, plain_logp, strict=True))
    assert shared.keys() == plain.keys() and any(one.abs().max() > 1e-2 for one in plain.values())
    for at, one in plain.items():
        assert torch.allclose(shared[at], one, atol=1e-5 * max(1.0, float(one.abs().max()))), at
    assert engine.logprobs("learning", ROWS)[3] == pytest.approx(plain_logp[3], abs=1e-5)


@pytest.mark.parametrize("rank", [0, 4])
def test_little_memory_changes_no_gradient(engine: TorchEngine, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = gradients(engine, rank)
    chunks, again = [], []
    monkeypatch.setattr(engine, "memory", 200_000)
    logits, checkpoint = engine._causal.logits, torch_engine.checkpoint
    monkeypatch.setattr(engine._causal, "logits", lambda hidden: chunks.append(len(hidden)) or logits(hidden))
    monkeypatch.setattr(torch_engine, "checkpoint", lambda *a, **k: again.append(1) or checkpoint(*a, **k))
    _, parts = gradients(engine, rank)
    assert max(chunks) <= 200_000 / (4 * 16 * 297) and again
    for at, one in whole.items():
        assert torch.allclose(parts[at], one, atol=1e-5 * max(1.0, float(one.abs().max()))), at
    assert not any(module.training for module in engine._model.modules())


def test_siblings_of_a_prompt_that_is_too_long_share_it_still(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(*range(5, 65), 100 + at, 7) for at in range(8)]
    sizes, run = [], engine._causal.run
    monkeypatch.setattr(engine, "_tokens_at_once", lambda rank: 50)
    monkeypatch.setattr(engine._causal, "run", lambda ids, *rest: sizes.append(ids.numel()) or run(ids, *rest))
    engine.create("learning", 4, 1)
    engine.forward_backward("learning", [Datum(row, (0.0,) * 60 + (1.0,) * 2) for row in rows])
    assert sum(sizes) == 60 + 8 * 2


def test_only_the_log_probabilities_that_are_needed_are_computed(engine: TorchEngine) -> None:
    whole = engine.logprobs(BASE, ROWS)
    needed = engine.logprobs(BASE, ROWS, WEIGHTS)
    assert any(value == 0 for value in needed[3][1:7]) and all(value < 0 for value in needed[3][7:])
    own = [[v if w else 0.0 for v, w in zip(*row, strict=True)] for row in zip(whole, WEIGHTS, strict=True)]
    assert needed[3] == pytest.approx(own[3], abs=1e-6)
    engine.create("learning", 0, 1)
    engine.forward_backward("learning", DATA, weighted_only=True)
    only = engine._slots["learning"].gradient
    _, all_of_them = gradients(engine, 0)
    assert all(torch.allclose(only[at], one, atol=1e-4) for at, one in all_of_them.items())


def test_a_model_with_a_window_of_attention_shares_nothing_and_is_computed_as_it_is(tmp_path: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = MistralConfig(**sizes, num_key_value_heads=1, vocab_size=297, sliding_window=4, eos_token_id=0)
    MistralForCausalLM(config).save_pretrained(tmp_path)
    engine = TorchEngine(tmp_path, device="cpu")
    assert engine._causal.linear == 0
    found = engine.logprobs(BASE, ROWS)
    for row, values in zip(ROWS, found, strict=True):
        logits = engine._model(input_ids=torch.tensor([row])).logits[0].log_softmax(-1)
        assert values[1:] == pytest.approx([float(logits[at, one]) for at, one in enumerate(row[1:])], abs=1e-5)
    draws = [TokenDraw(row[:8], 6, 1.0, at) for at, row in enumerate(ROWS)]
    for draw, drawn in zip(draws, engine.sample(BASE, draws), strict=True):
        [whole] = engine.logprobs(BASE, [(*draw.prompt, *drawn.ids)])
        assert whole[len(draw.prompt) :] == pytest.approx(drawn.logprobs, abs=1e-4)


def test_a_head_that_cannot_be_taken_apart_is_used_whole(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Gemma2Config(**sizes, num_key_value_heads=1, head_dim=16, vocab_size=297, final_logit_softcapping=0.5)
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    engine = TorchEngine(tmp_path, device="cpu")
    logits = engine._model(input_ids=torch.tensor([ROWS[0]])).logits[0].float().log_softmax(-1)
    [found] = engine.logprobs(BASE, [ROWS[0]])
    assert found[1:] == pytest.approx([float(logits[at, one]) for at, one in enumerate(ROWS[0][1:])], abs=1e-5)


def drawn_alone(engine: TorchEngine, draws: list[TokenDraw]) -> list[tuple[int, ...]]:
    return [engine.sample(BASE, [draw])[0].ids for draw in draws]


def test_rows_leave_the_batch_when_they_end_and_others_come_in(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = [TokenDraw(row[:9], 2 + 5 * (at % 3), 1.0, at) for at, row in enumerate(ROWS[:-1])]
    alone = drawn_alone(engine, draws)
    monkeypatch.setattr(sampling, "MOST_AT_ONCE", 3)
    widths, run = [], engine._causal.run
    monkeypatch.setattr(engine._causal, "run", lambda ids, *rest: widths.append(ids.shape) or run(ids, *rest))
    waiting, ended = draws[5:], list[tuple[int, TokensDrawn]]()

    def arrivals() -> Iterator[TokenDraw]:
        if waiting:
            yield waiting.pop(0)

    found = engine.sample(BASE, draws[:5], arrivals, lambda number, drawn: ended.append((number, drawn)))
    assert [one.ids for one in found] == alone
    steps = [rows for rows, width in widths if width == 1]
    assert max(steps) == 3 and sum(steps) == sum(map(len, alone))  # no row that has ended is drawn on
    assert [number for number, _ in ended] != sorted(number for number, _ in ended)


def test_equal_prompts_are_computed_once(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, run = [], engine._causal.run
    monkeypatch.setattr(engine._causal, "run", lambda ids, *rest: sizes.append(ids.numel()) or run(ids, *rest))
    engine.sample(BASE, [TokenDraw(ROWS[0][:12], 1, 1.0, at) for at in range(8)])
    assert sizes == [11, 8]


def test_a_prompt_of_one_token_is_answered_beside_a_longer_one(engine: TorchEngine) -> None:
    draws = [TokenDraw((7,), 4, 1.0, 1), TokenDraw(ROWS[0][:9], 4, 1.0, 2), TokenDraw((9,), 4, 1.0, 3)]
    assert [one.ids for one in engine.sample(BASE, draws)] == drawn_alone(engine, draws)


def test_top_p_draws_of_the_likeliest_tokens_only() -> None:
    logp = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    one, half = torch.tensor([[1.0]]), torch.tensor([[0.6]])
    dice = np.linspace(0.001, 0.999, 200)
    drawn = [int(sampling.choose(logp, one, half, [float(at)])) for at in dice]
    assert set(drawn) == {0, 1} and drawn.count(0) / 200 == pytest.approx(0.5 / 0.8, abs=0.02)
    assert {int(sampling.choose(logp, one, one, [float(at)])) for at in dice} == {0, 1, 2, 3}


def test_an_answer_ends_where_a_text_of_stop_is_complete(model_folder: Path) -> None:
    from training.weights.chat import ChatTokens

    chat = ChatTokens(model_folder)
    engine = TorchEngine(model_folder, device="cpu", decode=chat.text)
    draw = TokenDraw(ROWS[0][:9], 30, 1.0, 5)
    [whole] = engine.sample(BASE, [draw])
    text = chat.text(whole.ids)
    stop = text[6:8]
    [cut] = engine.sample(BASE, [TokenDraw(draw.prompt, 30, 1.0, 5, stop=("never there", stop))])
    assert cut.finish_reason == "stop" and cut.ids == whole.ids[: len(cut.ids)] and len(cut.ids) < len(whole.ids)
    assert stop in chat.text(cut.ids) and stop not in chat.text(cut.ids[:-1])
    assert chat.message(cut.ids, (stop,))["content"] == text[: text.index(stop)]


def test_adapters_of_several_ranks_are_there_together_and_leave_with_their_last_weights(engine: TorchEngine) -> None:
    row = Datum((*range(10, 18), 30), (0.0,) * 8 + (1.0,))
    [[*_, before]] = engine.logprobs(BASE, [row.ids])
    learned = {}
    for rank in (2, 4):
        engine.create(f"of {rank}", rank, 1)
        for _ in range(3 * rank):
            engine.forward_backward(f"of {rank}", [row])
            engine.optim_step(f"of {rank}", Adam(0.01))
        [[*_, learned[rank]]] = engine.logprobs(f"of {rank}", [row.ids])
    assert before < learned[2] < learned[4]
    assert engine.logprobs("of 2", [row.ids])[0][-1] == learned[2]
    assert engine.logprobs(BASE, [row.ids])[0][-1] == pytest.approx(before, abs=1e-6)
    engine.drop("of 4")
    assert set(engine._adapted) == {2} and not any(".rank4." in name for name, _ in engine._model.named_parameters())
    assert engine.logprobs("of 2", [row.ids])[0][-1] == learned[2]


def test_a_model_without_keys_and_values_is_refused(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Qwen3ForCausalLM

    class Forgetful(causal_model.DynamicCache):
        def update(self, keys: torch.Tensor, values: torch.Tensor, *rest: object) -> tuple[torch.Tensor, torch.Tensor]:
            return keys, values

    monkeypatch.setattr(causal_model, "DynamicCache", Forgetful)
    with pytest.raises(BadInput, match="does not go on"):
        causal_model.CausalModel(Qwen3ForCausalLM.from_pretrained(model_folder).eval(), "cpu")


def test_an_empty_tree_is_no_tree() -> None:
    assert list(trees_of([], most=10, linear=1.0)) == [] and len(TokenTree()) == 0 and list(batches_of([], 10)) == []
