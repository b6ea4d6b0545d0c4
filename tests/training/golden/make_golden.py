"""Makes ``golden.json``: numbers of torch and of TRL's own trainer, against which the NumPy engine is tested.

Run it with an interpreter that has torch and trl (neither is a dependency of this project)::

    python -m tests.training.golden.make_golden

The loss is that of ``trl.GRPOTrainer._compute_loss`` itself, called on a stand-in whose log-probabilities are a leaf
tensor. Everything is float64, so that agreement to rounding can be demanded.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch

from tests.training.golden import GOLDEN

MAX_LENGTH = 6
LENGTHS = (6, 3, 1, 4, 2, 5)

LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "clip_higher": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dual_clip": {"loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.5},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
    "sequence": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.06},
    "sequence_cispo": {"loss_type": "cispo", "importance_sampling_level": "sequence", "epsilon_high": 1.02},
    "kl": {"loss_type": "grpo", "beta": 0.05, "use_bias_correction_kl": False},
    "kl_corrected": {"loss_type": "dapo", "beta": 0.05, "use_bias_correction_kl": True},
    "kl_sequence": {"loss_type": "grpo", "beta": 0.05, "importance_sampling_level": "sequence"},
}


def make() -> dict[str, Any]:
    torch.manual_seed(20261121)
    return {
        "advantages": advantages(),
        "losses": losses(),
        "optimizers": optimizers(),
        "clip": clipping(),
        "policy": policy(),
    }


def advantages() -> list[dict[str, Any]]:
    """(r - mean) / (std + 1e-4) with TRL's own NaN-aware std, for groups of four."""
    from trl.trainer.utils import nanstd

    cases = {
        "plain": [1.0, 0.0, 0.5, 0.2, 0.0, 0.0, 1.0, 0.0],
        "one_not_scorable": [1.0, float("nan"), 0.5, 0.2, 0.0, 0.3, 1.0, 0.0],
        "constant_group": [0.7, 0.7, 0.7, 0.7, 0.0, 0.3, 1.0, 0.0],
    }
    made = []
    for name, rewards in cases.items():
        r = torch.tensor(rewards, dtype=torch.float64).view(-1, 4)
        centred = r - r.nanmean(dim=1, keepdim=True)
        group = torch.stack([nanstd(row) for row in r]).unsqueeze(1)
        scaled = {"none": centred, "group": centred / (group + 1e-4), "batch": centred / (nanstd(r) + 1e-4)}
        for scale, value in scaled.items():
            known = torch.nan_to_num(value, nan=0.0).flatten().tolist()
            rows = [None if x != x else x for x in rewards]
            made.append({"name": name, "scale_rewards": scale, "rewards": rows, "advantages": known})
    return made


def losses() -> list[dict[str, Any]]:
    lengths = torch.tensor(LENGTHS)
    mask = (torch.arange(MAX_LENGTH) < lengths.unsqueeze(1)).double()
    shape = mask.shape
    old = -2.0 * torch.rand(shape, dtype=torch.float64) - 0.1
    new = old + 0.35 * torch.randn(shape, dtype=torch.float64)
    reference = old + 0.5 * torch.randn(shape, dtype=torch.float64)
    advantage = torch.tensor([1.4, -0.7, 0.9, -1.2, 0.0, 0.6], dtype=torch.float64)
    made = []
    for name, options in LOSSES.items():
        loss, gradient = trl_loss(new, old, reference, advantage, mask, options)
        made.append(
            {
                "name": name,
                "options": options,
                "lengths": list(LENGTHS),
                "max_steps": MAX_LENGTH,
                "logp": new[mask.bool()].tolist(),
                "logp_old": old[mask.bool()].tolist(),
                "logp_ref": reference[mask.bool()].tolist(),
                "advantages": advantage.tolist(),
                "loss": loss,
                "d_logp": gradient[mask.bool()].tolist(),
            }
        )
    return made


def trl_loss(
    logp: torch.Tensor,
    old: torch.Tensor,
    reference: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    options: dict[str, Any],
) -> tuple[float, torch.Tensor]:
    """(loss, d loss / d logp) of ``GRPOTrainer._compute_loss`` for padded (B, T) log-probabilities."""
    leaf = logp.clone().requires_grad_(True)
    loss = trl_loss_of(leaf, old, reference, advantage, mask, options)
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad


def trl_loss_of(
    logp: torch.Tensor,
    old: torch.Tensor,
    reference: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    options: dict[str, Any],
) -> torch.Tensor:
    """The loss itself, in the graph of ``logp``."""
    from trl import GRPOTrainer

    rule = {
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "epsilon": 0.2,
        "epsilon_high": 0.2,
        "delta": None,
        "beta": 0.0,
        "use_bias_correction_kl": True,
    } | options
    stand_in = SimpleNamespace(
        loss_type=rule["loss_type"],
        importance_sampling_level=rule["importance_sampling_level"],
        epsilon_low=rule["epsilon"],
        epsilon_high=rule["epsilon_high"],
        beta=rule["beta"],
        args=SimpleNamespace(
            delta=rule["delta"], use_bias_correction_kl=rule["use_bias_correction_kl"], steps_per_generation=1
        ),
        current_gradient_accumulation_steps=1,
        max_completion_length=logp.shape[1],
        top_entropy_quantile=1.0,
        aux_loss_enabled=False,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": _Lists(), "eval": _Lists()},
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(
            gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, **_: x, num_processes=1
        ),
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, torch.zeros_like(logp), None),
    )
    tokens = torch.zeros(logp.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": tokens[:, :1],
        "prompt_mask": torch.ones_like(tokens[:, :1]),
        "completion_ids": tokens,
        "completion_mask": mask,
        "advantages": advantage,
        "old_per_token_logps": old,
        "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum(),
    }
    return GRPOTrainer._compute_loss(stand_in, None, inputs)


def optimizers() -> list[dict[str, Any]]:
    """Parameters after 50 steps on fixed gradients."""
    start = torch.randn(3, 2, dtype=torch.float64)
    gradients = torch.randn(50, 3, 2, dtype=torch.float64)
    kinds: dict[str, Any] = {
        "sgd": lambda p: torch.optim.SGD([p], lr=0.05, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam([p], lr=0.05, weight_decay=0.01),
        "adamw": lambda p: torch.optim.AdamW([p], lr=0.05, weight_decay=0.01),
    }
    made = []
    for name, build in kinds.items():
        parameter = start.clone().requires_grad_(True)
        optimizer = build(parameter)
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
        made.append(
            {
                "name": name,
                "learning_rate": 0.05,
                "weight_decay": 0.01,
                "start": start.tolist(),
                "gradients": gradients.tolist(),
                "end": parameter.detach().tolist(),
            }
        )
    return made


def clipping() -> dict[str, Any]:
    a, b = torch.randn(4, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    parameters = [torch.zeros_like(x).requires_grad_(True) for x in (a, b)]
    for parameter, gradient in zip(parameters, (a, b), strict=True):
        parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    clipped = [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None]
    return {"gradients": [a.tolist(), b.tolist()], "max_norm": 1.0, "norm": norm.item(), "clipped": clipped}


def policy() -> dict[str, Any]:
    """Log-probabilities, entropies and gradients of a masked linear softmax with shared history weights."""
    states, features, actions, statuses, decisions, temperature = 5, 7, 4, 4, 9, 0.8
    design = torch.randn(states, features, dtype=torch.float64)
    own = (torch.rand(states, statuses, actions, dtype=torch.float64) < 0.3).double()
    allowed = torch.rand(states, actions) < 0.7
    allowed[:, 0] = True
    weights = torch.randn(features, actions, dtype=torch.float64).requires_grad_(True)
    shared = torch.randn(statuses, dtype=torch.float64).requires_grad_(True)
    state = torch.randint(states, (decisions,))
    action = torch.stack([torch.multinomial(allowed[s].double(), 1)[0] for s in state])
    d_logp, d_entropy = torch.randn(2, decisions, dtype=torch.float64).unbind(0)
    logits = (design @ weights + torch.einsum("usa,s->ua", own, shared)) / temperature
    log_pi = torch.log_softmax(logits.masked_fill(~allowed, -1e30), dim=-1)
    entropy = -(log_pi.exp() * log_pi).sum(-1)
    logp = log_pi[state, action]
    (d_logp @ logp + d_entropy @ entropy[state]).backward()
    assert weights.grad is not None and shared.grad is not None
    return {
        "temperature": temperature,
        "design": design.tolist(),
        "own": own.tolist(),
        "allowed": allowed.tolist(),
        "weights": weights.tolist(),
        "shared": shared.tolist(),
        "state": state.tolist(),
        "action": action.tolist(),
        "d_logp": d_logp.tolist(),
        "d_entropy": d_entropy.tolist(),
        "logp": logp.tolist(),
        "entropy": entropy[state].tolist(),
        "d_weights": weights.grad.tolist(),
        "d_shared": shared.grad.tolist(),
    }


def _by_line(golden: dict[str, Any]) -> str:
    """JSON with one case per line, so that a change can be read."""
    parts = []
    for key, value in golden.items():
        rows = [json.dumps(row) for row in value] if isinstance(value, list) else None
        parts.append(f'"{key}": ' + ("[\n" + ",\n".join(rows) + "\n]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


class _Lists(dict[str, list[Any]]):
    """A dictionary that makes the list that a metric is appended to."""

    def __missing__(self, key: str) -> list[Any]:
        return self.setdefault(key, [])


if __name__ == "__main__":
    GOLDEN.write_text(_by_line(make()))
    print(f"wrote {GOLDEN}")
