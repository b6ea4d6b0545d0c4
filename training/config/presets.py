"""Named configurations: what to start from, and when to take which.

``recommended`` is the default of every kind of policy. ``flow_spec`` is the rule that was first
specified for this project. The others are the published relatives of GRPO (docs/algorithms.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.learners import Learner, learner_of
from training.schema import GRPOConfig

DEFAULT_PRESET = "recommended"


@dataclass(frozen=True, slots=True)
class Preset:
    """``when`` is one sentence for the form; ``changes`` are the fields that differ from ``GRPOConfig``'s
    defaults, ``own`` those that differ further for a learner, by its name; a learner that has none there takes its
    ``defaults``. ``fits`` names the learners that it is for; empty: all."""

    name: str
    title: str
    when: str
    changes: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]
    fits: frozenset[str] = frozenset()


_ACTION: Mapping[str, Any] = {
    "n_iterations": 375,
    "early_stopping": {"patience": 8},
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "num_iterations": 2,
    "learning_rate": 0.03,
    "entropy_coef": 0.02,
    "entropy_coef_failed_group": 0.1,
    "shaping": {"tool": 0.0, "verify": 0.1, "wrong_answer": -0.2},
    "exploration": {"failure_memory": 0.7, "query_sampling": "prioritised", "learn_from_failed_groups": False},
    "eval_temperature": 0.0,
    "eval_samples": 2,
}


def _relative(title: str, name: str, when: str, **changes: Any) -> Preset:
    """A relative of GRPO on the recommended footing: only what defines it differs."""
    return Preset(name, title, when, changes, {"action": _ACTION})


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "recommended",
            "Recommended",
            "Take this unless you want to compare: it learned from the fewest rollouts in our measurements.",
            {},
            {"action": _ACTION},
        ),
        Preset(
            "flow_spec",
            "Original rule",
            "Take this to compare with the first specification: positive advantages only, naive payment; "
            "it learns slowly, and a policy can collect payments without solving the task.",
            {
                "advantage_filter": "positive",
                "loss_type": "reinforce",
                "credit": "discounted",
                "adv_eps": 0.0,
                "std_ddof": 0,
                "shaping": {"rule": "naive"},
            },
            {"action": {"learning_rate": 0.03, "eval_temperature": 0.0}},
        ),
        _relative(
            "Dr. GRPO",
            "dr_grpo",
            "Take this when long failures grow longer: neither a rollout's length nor its group's spread changes its "
            "weight (arXiv 2503.20783).",
            loss_type="dr_grpo",
            scale_rewards="none",
            credit="uniform",
            entropy_coef=0.001,
            entropy_coef_failed_group=0.005,
        ),
        _relative(
            "DAPO",
            "dapo",
            "Take this when many groups show no spread: they are replaced by other queries (arXiv 2503.14476).",
            loss_type="dapo",
            credit="uniform",
            dynamic_sampling=True,
        ),
        _relative(
            "RLOO",
            "rloo",
            "Take this for an unbiased gradient: each rollout is compared with the mean of the others "
            "(arXiv 2402.14740).",
            loss_type="reinforce",
            baseline="loo",
            scale_rewards="none",
            credit="uniform",
            num_iterations=1,
            entropy_coef=0.005,
            entropy_coef_failed_group=0.025,
        ),
        _relative(
            "GSPO",
            "gspo",
            "Take this when several updates are made per batch and single steps' ratios run away (arXiv 2507.18071).",
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon=3e-4,
            epsilon_high=4e-4,
            credit="uniform",
        ),
        _relative(
            "CISPO",
            "cispo",
            "Take this when clipping silences rare but decisive steps: weights are capped, no gradient is lost "
            "(arXiv 2506.13585).",
            loss_type="cispo",
            epsilon_high=5.0,
            credit="uniform",
        ),
        Preset(
            "gigpo",
            "GiGPO",
            "Take this when siblings often reach the same state: those steps are compared with each other too "
            "(arXiv 2505.10978).",
            {"credit": "gigpo", "scale_rewards": "none", "entropy_coef": 0.005, "entropy_coef_failed_group": 0.025},
            {"action": _ACTION},
            fits=frozenset({"action"}),  # a context is learned from whole rollouts
        ),
        Preset(
            "ppo",
            "PPO",
            "Take this for weights whose rollouts can't be repeated: a learned value function "
            "replaces the siblings (arXiv 1707.06347).",
            {
                "credit": "value",
                "baseline": "value",
                "scale_rewards": "batch",
                "gamma": 1.0,
                "gae_lambda": 0.95,
                "epsilon_high": 0.2,
                "num_iterations": 2,
            },
            {},
            fits=frozenset({"weights"}),
        ),
        Preset(
            "dpo",
            "DPO",
            "Take this for weights where only better and worse is known: the best and the worst rollout of each query "
            "are a pair (arXiv 2305.18290).",
            {"algorithm": "dpo", "beta": 0.1, "credit": "uniform", "num_iterations": 1},
            {},
            fits=frozenset({"weights"}),
        ),
        Preset(
            "tfgrpo",
            "Training-free GRPO",
            "Take this for a language model and about 100 queries: the context holds all lessons, and every second "
            "iteration keeps its lessons or gives them up (arXiv 2510.08191); it spends more than recommended, and "
            "measures no single lesson.",
            {
                "algorithm": "tfgrpo",
                "n_iterations": 30,
                "n_trajectories_per_query": 5,
                "eval_interval": 10,
                "temperature": 0.7,
                "eval_temperature": 0.3,
                "context": {"epochs": 3, "group_tokens": 0},
            },
            {"action": {}},
            fits=frozenset({"context"}),
        ),
        Preset(
            "gepa",
            "GEPA",
            "Take this to compare with recommended: GEPA (arXiv 2507.19457) rewrites the whole context again and "
            "again, and the job plays, pays and proves it like any other; it measures no single lesson.",
            {
                "algorithm": "gepa",
                "n_iterations": 300,
                "batch_size": 8,
                "n_trajectories_per_query": 1,
                "eval_interval": 300,
                "context": {"reflect_groups": 3},
            },
            {"action": {}},
            fits=frozenset({"context"}),
        ),
    )
}


def presets_for(runtime: str, learner: str = "") -> list[Preset]:
    """The presets that make a difference to a learner, in their order."""
    name = learner_of(runtime, learner).name
    return [preset for preset in PRESETS.values() if not preset.fits or name in preset.fits]


def preset_config(name: str = DEFAULT_PRESET, runtime: str = "action", learner: str = "") -> GRPOConfig:
    """The configuration called ``name`` for a learner of agents of this runtime.

    Raises:
        LookupError: there is no such preset; the message lists those that exist.
        UnknownName, UnfitLearner: there is no such learner, or it is for other agents.
    """
    return GRPOConfig.model_validate(preset_values(name, learner_of(runtime, learner)) | named(learner))


def named(learner: str) -> dict[str, str]:
    """The setting that names a learner; none where it is the one that is taken anyway."""
    return {"learner": learner} if learner else {}


def preset_values(name: str, learner: Learner) -> dict[str, Any]:
    """Differences of the preset from this learner's defaults, by field; shaping and features only in part.

    Raises:
        LookupError: there is no such preset; the message lists those that exist.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise LookupError(f"There is no preset named {name!r}. Known: {', '.join(PRESETS)}.")
    return merged({**preset.own.get(learner.name, learner.defaults), "preset": name}, preset.changes)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` laid over it; nested mappings are merged, everything else is replaced."""
    result = dict(base)
    for name, value in changes.items():
        below = result.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
