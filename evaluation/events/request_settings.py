"""Settings of a training request, as the learners here have them, and the parts of it that they ignore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentcore_site.lib.errors import Invalid
from experiences.agents.endpoint_config import uses_model_server
from experiences.models import Agent, AgentRuntime
from training.schema import MOST_HELD_OUT

DEFAULT_PRESET: Final = "recommended"
# What learners of actions and lessons can do of the algorithms, as their settings call it.
HERE: Final[dict[str, dict[str, Any]]] = {"grpo": {}, "rloo": {"baseline": "loo", "scale_rewards": "none"}}
OF_ACTIONS: Final = {"learning_rate": "learning_rate", "clip_epsilon": "epsilon", "gamma": "gamma"}
# Learner weights, for agents at a model server: the preset of each algorithm, and what of the request it takes.
COMMON: Final = frozenset({"learning_rate", "batch_size", "epochs"})
OF_WEIGHTS: Final = {
    "grpo": (DEFAULT_PRESET, COMMON | {"clip_epsilon"}),
    "rloo": ("rloo", COMMON),
    "ppo": ("ppo", COMMON | {"clip_epsilon", "gamma", "gae_lambda"}),
    "dpo": ("dpo", COMMON),
}
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "learning_rate": ("learning_rate",),
    "batch_size": ("batch_size",),
    "epochs": (),  # as many iterations
    "clip_epsilon": ("epsilon", "epsilon_high"),
    "gamma": ("gamma",),
    "gae_lambda": ("gae_lambda",),
}
# Parts of a request that no learner here looks at; a service elsewhere gets all of it.
UNUSED: Final = (
    "training_config.compute",
    "training_config.checkpointing.max_checkpoints",
    "training_config.checkpointing.storage_path",
    "evaluation.metrics",
    "evaluation.benchmark_tasks",
    "metadata.previous_training_job",
)


def unused_here(agent: Agent, payload: Mapping[str, Any]) -> list[str]:
    """Features of a request that a learner here ignores, by their dotted names."""
    config = payload["training_config"]
    given = set(config.get("hyperparameters") or ())
    parts = [name for name in UNUSED if _part(payload, name) not in (None, [], {})]
    parts += [f"training_config.hyperparameters.{name}" for name in sorted(given - _taken(agent, config["algorithm"]))]
    if agent.environment != "dataset":  # it makes its tasks itself
        parts += [name for name in ("training_config.dataset.filter", "training_config.dataset.sample_size")
                  if _part(payload, name) is not None]  # fmt: skip
    if _part(payload, "evaluation.enabled") is False:
        parts.append("evaluation.enabled")
    return parts


def _part(payload: Mapping[str, Any], name: str) -> Any:
    value: Any = payload
    for key in name.split("."):
        value = (value or {}).get(key)
    return value


def _taken(agent: Agent, algorithm: str) -> frozenset[str]:
    """The hyperparameters that its learner has."""
    if uses_model_server(agent):
        return OF_WEIGHTS[algorithm][1]
    return frozenset(OF_ACTIONS if agent.runtime == AgentRuntime.ACTION else {"epochs"}) | {"batch_size"}


def settings_of(agent: Agent, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset, and what differs from it.

    Raises:
        Invalid: weights are asked for what their algorithm has not.
    """
    algorithm, given = config["algorithm"], config.get("hyperparameters") or {}
    interval = (config.get("checkpointing") or {}).get("save_interval")
    saved = {} if interval is None else {"checkpoint_interval": interval}
    if uses_model_server(agent):
        preset, takes = OF_WEIGHTS[algorithm]
        if others := sorted(set(given) & set(NAMES) - takes):
            message = f"{algorithm} of weights has no {', '.join(others)} here."
            raise Invalid(message, fields={"hyperparameters": message})
        settings = {ours: given[name] for name in takes if name in given for ours in NAMES[name]}
        return preset, {"learner": "weights", **settings, **saved}
    settings = dict(HERE[algorithm])
    if agent.runtime == AgentRuntime.ACTION:
        settings |= {ours: given[theirs] for theirs, ours in OF_ACTIONS.items() if theirs in given}
    else:
        settings = {"context": {"epochs": given["epochs"]}} if "epochs" in given else {}
    if "batch_size" in given:
        settings["batch_size"] = given["batch_size"]
    return DEFAULT_PRESET, settings | saved


def held_out_share_of(payload: Mapping[str, Any]) -> float | None:
    """Raises:
    Invalid: nothing would prove what was learned, or nothing would be learned from."""
    share = (payload.get("evaluation") or {}).get("holdout_size")
    if share is not None and not 0 < share <= MOST_HELD_OUT:
        message = f"holdout_size: what is learned here is proven on held-out queries; above 0, at most {MOST_HELD_OUT}."
        raise Invalid(message, fields={"evaluation": message})
    return share
