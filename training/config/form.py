"""``GRPOConfig`` as a form sees it: titles, effects and ranges per field, in groups. One source for form and page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from training.config.presets import PRESETS, preset_config
from training.learners import learner_of, learners
from training.schema import GRPOConfig

# The groups of the advanced settings, in their order. What no group names falls under "Rollouts".
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Size and pace": (
        "n_iterations", "algorithm", "learner", "batch_size", "n_trajectories_per_query", "learning_rate",
        "checkpoint_interval", "seed", "warm_start", "max_monthly_budget_usd",
    ),
    "Advantages and credit": (
        "scale_rewards", "baseline", "adv_eps", "std_ddof", "advantage_filter", "credit", "gamma", "step_advantage_w",
        "value_fit", "gae_lambda",
    ),
    "Loss": (
        "loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "num_iterations", "beta",
        "kl_estimator", "use_bias_correction_kl", "entropy_coef", "entropy_coef_failed_group", "mask_truncated",
    ),
    "Query selection": ("dynamic_sampling", "max_num_gen_batches"),
    "Optimiser": ("optimizer", "max_grad_norm", "weight_decay"),
    "Rollouts": ("temperature", "max_steps", "rollout_timeout_seconds", "max_concurrent_rollouts"),
    "Rewards": ("reward", "reward_options", "shaping"),
    "Features of the policy": ("features",),
    "Context of the agent": ("context",),
    "Selection and stopping": (
        "held_out_share", "selection_share", "selection_least", "eval_interval", "eval_samples", "eval_temperature",
        "early_stopping",
    ),
}  # fmt: skip
PLAIN: Final = ("max_budget_usd",)  # are above the advanced settings


@dataclass(frozen=True)
class Field:
    """One setting: ``name`` is dotted below the top level; ``kind`` is flag, choice, whole, number or text."""

    name: str
    title: str
    description: str
    kind: str
    choices: tuple[Any, ...] = ()
    range: str = ""
    optional: bool = False

    @property
    def id(self) -> str:
        return "field-" + self.name.replace(".", "-").replace("_", "-")


@dataclass(frozen=True)
class SettingsSection:
    title: str
    rows: list[tuple[Field, Any]] = field(default_factory=list)


@lru_cache(maxsize=1)
def fields() -> dict[str, Field]:
    """Every setting by its dotted name, in the schema's order, but for the preset itself."""
    return {one.name: one for one in _of(GRPOConfig, "") if one.name != "preset"}


def groups() -> dict[str, list[Field]]:
    """The advanced settings by group."""
    grouped: dict[str, list[Field]] = {title: [] for title in GROUPS}
    group_of = {name: title for title, names in GROUPS.items() for name in names}
    for one in fields().values():
        top = one.name.partition(".")[0]
        if top not in PLAIN:
            grouped[group_of.get(top, "Rollouts")].append(one)
    return grouped


def sections(config: Mapping[str, Any], runtime: str) -> list[SettingsSection]:
    """A whole configuration for reading: every setting that counts for its learner with its value, by group."""
    grouped, reads = {"The job": [fields()[name] for name in PLAIN], **groups()}, _reads(config, runtime)
    found = [
        SettingsSection(title, [(member, value_at(config, member.name)) for member in members if reads(member.name)])
        for title, members in grouped.items()
    ]
    return [one for one in found if one.rows]


def _reads(config: Mapping[str, Any], runtime: str) -> Callable[[str], bool]:
    """Whether the configuration's learner reads a setting."""
    return partial(learner_of(runtime, _learner(config)).reads, algorithm=str(config.get("algorithm", "grpo")))


def _learner(config: Mapping[str, Any]) -> str:
    """The learner's name; "", for the runtime's own, where the package that brought it is gone."""
    name = str(config.get("learner", ""))
    return name if name in learners.names() else ""


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """The value under a dotted name."""
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def changes(config: Mapping[str, Any], runtime: str) -> list[tuple[Field, Any, Any]]:
    """(setting, the preset's value, the configuration's) where they differ, of those that count.

    Reads the stored values as they are: a run of another version, whose settings this one no longer knows or does not
    know yet, must still be shown.
    """
    name = str(config.get("preset", ""))
    if name not in PRESETS:
        return []
    theirs = preset_config(name, runtime, _learner(config)).as_dict()
    found = [(one, value_at(theirs, one.name), value_at(config, one.name)) for one in fields().values()]
    reads = _reads(config, runtime)
    return [(one, a, b) for one, a, b in found if a != b and reads(one.name) and is_set(config, one.name)]


def is_set(config: Mapping[str, Any], name: str) -> bool:
    """True if the configuration has a value under a dotted name, null included."""
    *path, last = name.split(".")
    inner = value_at(config, ".".join(path)) if path else config
    return isinstance(inner, Mapping) and last in inner


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"shaping.tool": 1} → {"shaping": {"tool": 1}}."""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        head, _, rest = name.partition(".")
        if rest:
            result.setdefault(head, {})[rest] = value
        else:
            result[head] = value
    return result


def _of(model: type[BaseModel], prefix: str) -> list[Field]:
    found: list[Field] = []
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += _of(inner, f"{prefix}{name}.")
        else:
            found.append(_field(f"{prefix}{name}", info))
    return found


def _field(name: str, info: FieldInfo) -> Field:
    kind, choices, optional = _kind(info.annotation)
    return Field(
        name, info.title or name, info.description or "", kind, choices, _range(info) if not choices else "", optional
    )


def _kind(annotation: Any) -> tuple[str, tuple[Any, ...], bool]:
    if get_origin(annotation) in (Union, UnionType):
        inner = next(one for one in get_args(annotation) if one is not type(None))
        return (*_kind(inner)[:2], True)
    if get_origin(annotation) is Literal:
        return "choice", get_args(annotation), False
    return {bool: "flag", int: "whole", float: "number"}.get(annotation, "text"), (), False


def _range(info: FieldInfo) -> str:
    """The field's bounds in a few signs: 1 to 10,000; > 0 to 0.1; from 0."""
    low = next((one for one in info.metadata if isinstance(one, Ge | Gt)), None)
    high = next((one for one in info.metadata if isinstance(one, Le | Lt)), None)
    if low is None:
        return ""
    below = _number(low.ge) if isinstance(low, Ge) else f"> {_number(low.gt)}"
    if high is None:
        return f"from {below}"
    return f"{below} to {_number(high.le) if isinstance(high, Le) else f'< {_number(high.lt)}'}"


def _number(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) else f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return text.replace("-", "−")
