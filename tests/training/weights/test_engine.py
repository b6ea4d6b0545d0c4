"""The engine over transformers: its gradients are TRL's, and its states go out and come back whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra [weights] is not installed")

from experiences.rollouts.captured import SampledTokens, TokenRow  # noqa: E402
from experiences.rollouts.own_weights import Weights  # noqa: E402
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup  # noqa: E402
from training.learners.weights_update import update_weights  # noqa: E402
from training.policies.weights import WeightsPolicy, weights_from  # noqa: E402
from training.schema import GRPOConfig  # noqa: E402
from training.weights.causal_model import number_kind  # noqa: E402
from training.weights.engine import BASE, Adam, BadInput, Datum, TokenDraw, UnknownWeights  # noqa: E402
from training.weights.torch_engine import TorchEngine  # noqa: E402

pytestmark = pytest.mark.slow(reason="torch takes seconds to import")

PROMPTS = [tuple(range(10 + at, 18 + at)) for at in range(3)]


@pytest.fixture(scope="module")
def engine(model_folder: Path) -> TorchEngine:
    return TorchEngine(model_folder, device="cpu")


class EngineTrainer:
    """``WeightsTrainer`` without a server between; keeps the gradient of each step."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine, self.gradients = engine, []

    async def open(self, start: Weights, *, rank: int, seed: int) -> str:
        self.engine.create("learning", rank, seed)
        if start.digest:
            self.engine.load("learning", start.state)
        return "learning"

    async def close(self, model: str) -> Weights:
        return weights_from(self.engine.save(model))

    async def logprobs(self, weights: Weights | str, rows: Sequence[TokenRow]) -> list[list[float]]:
        name = weights if isinstance(weights, str) else weights.digest or BASE
        return self.engine.logprobs(name, [row.ids for row in rows])

    async def forward_backward(self, model: str, rows: Sequence[TokenRow], pulls: Sequence[Sequence[float]]) -> None:
        pairs = zip(rows, pulls, strict=True)
        data = [Datum(tuple(row.ids), tuple(-one for one in pull)) for row, pull in pairs]
        self.engine.forward_backward(model, data)

    async def optim_step(self, model: str, adam: Mapping[str, float]) -> dict[str, float]:
        self.gradients.append({at: one.clone() for at, one in self.engine._slots[model].gradient.items()})
        return self.engine.optim_step(model, Adam(**adam))


def group_of(engine: TorchEngine, *, seed: int = 0) -> TrajectoryGroup:
    """Four rollouts of two turns each, sampled from the base model; their rewards differ."""
    trajectories = []
    for number in range(4):
        steps, before, prompt = [], None, PROMPTS[0]
        for turn in range(2):
            [drawn] = engine.sample(BASE, [TokenDraw(prompt, 2 + (number + turn) % 3, 1.0, seed + 10 * number + turn)])
            call = SampledTokens(prompt, drawn.ids, drawn.logprobs)
            steps.append(Step({"observation": "", "done": []}, {}, {}, sampled=call.packed(before)))
            before, prompt = call, (*call.whole, 20 + number)
        reward = [1.0, 0.0, 0.4, -0.3][number]
        trajectories.append(Trajectory(RolloutKey(1, 0, number), "q", steps, reward > 0, reward, reward))
    return TrajectoryGroup(Scenario(0, "q"), trajectories)


def learned(engine: TorchEngine, group: TrajectoryGroup, **config: Any) -> tuple[Any, EngineTrainer, WeightsPolicy]:
    settings = {"learner": "weights", "credit": "uniform", "weights": {"lora_rank": 0}, "max_grad_norm": 1000}
    policy, trainer = WeightsPolicy(), EngineTrainer(engine)
    config = GRPOConfig.model_validate(settings | config)
    return asyncio.run(update_weights([group], policy, None, trainer, config, seed=1)), trainer, policy


LOSSES = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
    "dual clip": {"loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.5},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.06},
    "with KL": {"loss_type": "grpo", "beta": 0.05},
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_every_parameter_is_that_of_trls_loss_on_the_same_rollouts(
    engine: TorchEngine, name: str
) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    from tests.training.golden.make_golden import trl_loss_of

    group, options = group_of(engine), LOSSES[name]
    result, trainer, _ = learned(
        engine, group, **({"epsilon_high": 0.2, "weights": {"lora_rank": 0, "max_length": 14}} | options)
    )
    assert result.applied == 1
    # The same rollouts as TRL has them: one padded row each, with a mask for what the environment wrote.
    rows = [[SampledTokens.unpacked(t.steps[0].sampled, None)] for t in group.trajectories]
    for row, trajectory in zip(rows, group.trajectories, strict=True):
        row.append(SampledTokens.unpacked(trajectory.steps[1].sampled, row[0]))
    longest = 14
    mask, old = torch.zeros(4, longest), torch.zeros(4, longest)
    ids = torch.zeros(4, len(PROMPTS[0]) + longest, dtype=torch.long)
    for at, calls in enumerate(rows):
        ids[at, : len(calls[1].whole)] = torch.tensor(calls[1].whole)
        for call in calls:
            place = slice(len(call.prompt) - len(PROMPTS[0]), len(call.whole) - len(PROMPTS[0]))
            mask[at, place], old[at, place] = 1.0, torch.tensor(call.logprobs)
    with engine._holding(BASE) as model:
        model.requires_grad_(True)
        logits = model(input_ids=ids).logits[:, len(PROMPTS[0]) - 1 : -1].float()
        logp = logits.log_softmax(-1).gather(2, ids[:, len(PROMPTS[0]) :, None])[:, :, 0]
        advantages = torch.tensor(group.advantages)
        loss = trl_loss_of(logp, old, logp.detach(), advantages, mask, {"epsilon": 0.2} | options)
        loss.backward()
        theirs = {at: one.grad.clone() for at, one in model.named_parameters()}
        model.requires_grad_(False)
        for one in model.parameters():
            one.grad = None
    assert result.metrics["loss"] == pytest.approx(float(loss), abs=1e-5)
    [ours] = trainer.gradients
    assert ours.keys() == theirs.keys() and any(one.abs().max() > 1e-3 for one in theirs.values())
    for at, gradient in theirs.items():
        assert torch.allclose(ours[at], gradient, atol=1e-5), at


def test_dpo_pulls_as_autograd_says(engine: TorchEngine) -> None:
    """TRL's formula for a pair, the best and the worst rollout, with the base model as reference: at the first step."""
    group = group_of(engine)
    result, trainer, _ = learned(engine, group, algorithm="dpo", beta=0.1)
    assert result.metrics["loss"] == pytest.approx(np.log(2), abs=1e-6) and result.applied == 1
    with engine._holding(BASE) as model:
        model.requires_grad_(True)
        sums = []
        for at in (0, 3):
            first = SampledTokens.unpacked(group.trajectories[at].steps[0].sampled, None)
            second = SampledTokens.unpacked(group.trajectories[at].steps[1].sampled, first)
            ids = torch.tensor([second.whole])
            logp = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            said = [
                *range(len(first.prompt) - 1, len(first.whole) - 1),
                *range(len(second.prompt) - 1, len(ids[0]) - 1),
            ]
            sums.append(logp[said].sum())
        margin = 0.1 * ((sums[0] - sums[0].detach()) - (sums[1] - sums[1].detach()))
        (-torch.nn.functional.logsigmoid(margin)).backward()
        theirs = {at: one.grad.clone() for at, one in model.named_parameters()}
        model.requires_grad_(False)
        for one in model.parameters():
            one.grad = None
    for at, gradient in theirs.items():
        assert torch.allclose(trainer.gradients[0][at], gradient, atol=1e-5), at


@pytest.mark.parametrize("credit", ["reward_to_go", "discounted", "pooled", "step_index", "gigpo", "uniform", "value"])
def test_credit_of_turns_reaches_their_tokens_in_every_mode(engine: TorchEngine, credit: str) -> None:
    from training.algorithm.value import RidgeValue

    group, policy, trainer = group_of(engine), WeightsPolicy(), EngineTrainer(engine)
    for number, trajectory in enumerate(group.trajectories):
        trajectory.steps[0].reward = 0.1 * number
    given = {"learner": "weights", "credit": credit, "gamma": 0.5, "scale_rewards": "none", "weights": {"lora_rank": 4}}
    value = RidgeValue() if credit == "value" else None
    work = update_weights([group], policy, value, trainer, GRPOConfig.model_validate(given), seed=1)
    result = asyncio.run(work)
    assert result.applied == 1 and policy.weights.digest and np.isfinite(result.metrics["loss"])
    assert [len(one) for one in group.step_advantages] == [2, 2, 2, 2]
    turns = np.array(group.step_advantages)
    assert (np.ptp(turns, axis=1) > 1e-6).any() == (credit != "uniform")


def test_new_weights_answer_as_the_base_does_and_learned_ones_otherwise(engine: TorchEngine) -> None:
    draws = [TokenDraw(prompt, 6, 1.0, at) for at, prompt in enumerate(PROMPTS)]
    base = engine.sample(BASE, draws)
    for rank in (0, 4):
        engine.create("new", rank, 1)
        assert [one.ids for one in engine.sample("new", draws)] == [one.ids for one in base]
        for _ in range(5):
            engine.forward_backward("new", [Datum((*PROMPTS[0], 30), (0.0,) * 8 + (1.0,))])
            engine.optim_step("new", Adam(0.01, grad_clip_norm=1.0))
        [[*_, learned_one]], [[*_, before]] = (engine.logprobs(n, [(*PROMPTS[0], 30)]) for n in ("new", BASE))
        assert learned_one > before + 0.5
        assert [one.ids for one in engine.sample(BASE, draws)] == [one.ids for one in base]


def test_a_row_draws_the_same_in_any_batch_with_the_probabilities_of_a_forward_pass(
    engine: TorchEngine,
) -> None:
    draws = [TokenDraw(prompt[: 4 + at], 6, 1.0, at) for at, prompt in enumerate(PROMPTS)]
    together = engine.sample(BASE, draws)
    assert [engine.sample(BASE, [one])[0].ids for one in draws] == [one.ids for one in together]
    whole = engine.logprobs(BASE, [(*draw.prompt, *drawn.ids) for draw, drawn in zip(draws, together, strict=True)])
    for draw, drawn, logp in zip(draws, together, whole, strict=True):
        assert logp[len(draw.prompt) :] == pytest.approx(drawn.logprobs, abs=1e-5)
    coldest = engine.sample(BASE, [TokenDraw(PROMPTS[0], 3, 0.0, seed) for seed in (1, 2)])
    assert coldest[0].ids == coldest[1].ids


@pytest.mark.parametrize("rank", [0, 4])
def test_a_restored_state_continues_bit_for_bit(engine: TorchEngine, rank: int) -> None:
    def train(name: str, steps: int) -> None:
        for at in range(steps):
            engine.forward_backward(name, [Datum((*PROMPTS[at % 3], 30), (0.0,) * 8 + (1.0,))])
            engine.optim_step(name, Adam(0.01))

    engine.create("one", rank, 3)
    train("one", 3)
    engine.load("two", engine.save("one"))
    train("one", 3)
    train("two", 3)
    assert engine.save("one") == engine.save("two")


def test_weights_that_are_only_sampled_from_hold_no_moments(engine: TorchEngine) -> None:
    engine.create("trained", 4, 3)
    for prompt in PROMPTS[:2]:
        engine.forward_backward("trained", [Datum((*prompt, 30), (0.0,) * 8 + (1.0,))])
        engine.optim_step("trained", Adam(0.01))
    state = engine.save("trained")
    engine.load("sampled", state)
    engine.sample("sampled", [TokenDraw(PROMPTS[0], 2)])
    slot = engine._slots["sampled"]
    assert not (slot.first or slot.second or slot.gradient) and slot.weights.keys() == engine._adapted[4].keys()
    assert engine.save("sampled") == state


def test_an_input_that_does_not_fit_is_refused_and_changes_nothing(engine: TorchEngine) -> None:
    engine.create("kept", 4, 1)
    before = engine.save("kept")
    with pytest.raises(BadInput):
        engine.load("kept", b"PK nothing")
    with pytest.raises(BadInput):
        engine.create("other", 1_000, 1)
    with pytest.raises(BadInput):
        engine.forward_backward("kept", [Datum((10_000, 1), (0.0, 1.0))])
    with pytest.raises(UnknownWeights):
        engine.sample("nobody", [TokenDraw(PROMPTS[0], 1)])
    engine.forward_backward("kept", [Datum(PROMPTS[0], (float("nan"),) * 8)])
    assert engine.optim_step("kept", Adam(0.01)) == {"grad_norm": 0.0, "skipped": 1.0}
    assert engine.save("kept") == before


@pytest.mark.parametrize(
    ("asked", "there", "kind"),
    [("", True, "float32"), ("auto", True, "bfloat16"), ("auto", False, "float32"), ("bfloat16", False, "bfloat16")],
)
def test_bfloat16_is_taken_by_itself_where_the_processor_computes_it(
    asked: str, there: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": there, "cpu_name": "x"})
    assert number_kind(asked, "cpu") == kind
