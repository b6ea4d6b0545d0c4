"""From what a person typed or posted to a ``GRPOConfig`` and clean queries, with messages for people.

Every interface (form, REST, JSON-RPC, command line) calls these two functions, so that a mistake reads the same
everywhere.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agentcore_site.lib.figures import counted
from agentcore_site.lib.registry import UnknownName
from experiences.rollouts.rewards.trial import reward_fields
from experiences.rollouts.runtimes.base import calls_model
from training.config.form import fields, value_at
from training.config.presets import DEFAULT_PRESET, PRESETS, merged, named, preset_values
from training.learners import Learner, UnfitLearner, learner_of
from training.schema import GRPOConfig
from training.splits import normalized

MAX_QUERIES = 10_000
FEW_QUERIES = 100
ROW_KEYS = ("query", "expected_outcome", "metadata")
MAX_REPORTED = 20  # faulty rows named in one answer
_BOUNDS: dict[type, str] = {Ge: "at least", Gt: "greater than", Le: "at most", Lt: "less than"}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake: the (dotted) field it is in, and a whole sentence about it."""

    field: str
    message: str


class ConfigError(ValueError):
    """The input can't be used; ``errors`` holds every mistake found."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(" ".join(error.message for error in errors))
        self.errors = list(errors)


def parse_config(
    raw: Mapping[str, Any] | None, *, runtime: str = "action", defaults: Mapping[str, Any] | None = None
) -> tuple[GRPOConfig, list[str]]:
    """(configuration, warnings). What ``raw`` leaves out comes from ``defaults``, and what they leave out from its
    preset ("recommended" by default).

    Raises:
        ConfigError: unknown keys, values of the wrong kind or out of range, or a combination that can't learn.
    """
    values = dict(raw or {})
    name = values.get("preset", DEFAULT_PRESET)
    if not isinstance(name, str) or name not in PRESETS:
        message = f"There is no preset named {_quoted(name)}. Known: {', '.join(PRESETS)}."
        raise ConfigError([FieldError("preset", message)])
    flags = _numbers_given_as_flags(values, GRPOConfig)
    if flags:
        raise ConfigError(flags)
    learner = _learner(values.get("learner"), runtime)
    unasked = {**preset_values(name, learner), **named(str(values.get("learner") or "")), **(defaults or {})}
    try:
        config = GRPOConfig.model_validate(merged(unasked, values))
    except ValidationError as error:
        raise ConfigError([_field_error(details) for details in error.errors()]) from None
    errors = _contradictions(config, learner, runtime) or list(_ignored(config, unasked, learner))
    if errors:
        raise ConfigError(errors)
    return config, list(_warnings(config))


def parse_queries(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Clean rows. A row is an object with "query" and, optionally, "expected_outcome" and "metadata"; queries are
    trimmed. What deserves a second look says ``query_warnings``.

    Raises:
        ConfigError: no rows, too many, or faulty ones; rows are numbered from 1.
    """
    clean: list[dict[str, Any]] = []
    errors: list[FieldError] = []
    for number, row in enumerate(rows, start=1):
        if number > MAX_QUERIES:
            message = f"At most {MAX_QUERIES:,} queries are allowed; there are more."
            raise ConfigError([FieldError("training_data", message)])
        problem = row_problem(row)
        if problem:
            errors.append(FieldError(f"training_data.{number}", f"Row {number}: {problem}"))
            if len(errors) >= MAX_REPORTED:
                break
        else:
            clean.append({**row, "query": row["query"].strip()})
    if errors:
        raise ConfigError(errors)
    if not clean:
        raise ConfigError([FieldError("training_data", "At least one query is needed; got none.")])
    return clean


def query_warnings(queries: Sequence[str]) -> list[str]:
    """Warnings about accepted queries: too few of them, and repetitions."""
    warnings = []
    if len(queries) < FEW_QUERIES:
        warnings.append(
            f"Only {counted(len(queries), 'query', 'queries')}: from fewer than {FEW_QUERIES} the policy learns single "
            "questions by heart, and the held-out test can't show small gains."
        )
    distinct = len({normalized(query) for query in queries})
    if distinct < len(queries):
        warnings.append(f"{len(queries) - distinct} queries repeat another one; repetitions stay on one side.")
    return warnings


def row_problem(row: Any) -> str:
    """The fault of a row of a dataset, as a sentence; "" without a fault."""
    if not isinstance(row, Mapping):
        return f'must be an object with a "query"; got {_quoted(row)}.'
    for key in row:
        if key not in ROW_KEYS:
            return f"unknown key {_quoted(key)}{_similar(str(key), ROW_KEYS)}. Known: {', '.join(ROW_KEYS)}."
    query = row.get("query")
    if not isinstance(query, str):
        return '"query" is missing.' if query is None else f'"query" must be text; got {_quoted(query)}.'
    if not query.strip():
        return '"query" is empty.'
    for key in ("expected_outcome", "metadata"):
        if row.get(key) is not None and not isinstance(row[key], Mapping):
            return f'"{key}" must be an object; got {_quoted(row[key])}.'
    return ""


def _learner(name: Any, runtime: str) -> Learner:
    """Raises:
    ConfigError: there is no such learner, or it is for other agents."""
    try:
        return learner_of(runtime, str(name or ""))
    except (UnknownName, UnfitLearner) as error:
        raise ConfigError([FieldError("learner", str(error))]) from None


def _contradictions(config: GRPOConfig, learner: Learner, runtime: str) -> list[FieldError]:
    """Combinations that can't learn, though each value is in range."""
    if faults := learner.faults(config):
        return [FieldError(name, text) for name, text in faults.items()]
    alone = config.credit == "value" or (config.baseline == "value" and config.credit in ("uniform", "discounted"))
    alone = alone or config.algorithm == "gepa"  # it compares contexts, and not rollouts of one query
    if config.n_trajectories_per_query < 2 and not alone:
        message = (
            "n_trajectories_per_query must be at least 2 for GRPO, which compares rollouts of the same query; got "
            f"{config.n_trajectories_per_query}. For groups of one set credit to value."
        )
        return [FieldError("n_trajectories_per_query", message)]
    if config.loss_type == "cispo" and config.epsilon_high < 1:
        message = (
            f"epsilon_high is the cap of the ratio with loss cispo and must be at least 1; got {config.epsilon_high:g}."
        )
        return [FieldError("epsilon_high", message)]
    return _reward_errors(config, runtime)


def _ignored(config: GRPOConfig, unasked: Mapping[str, Any], learner: Learner) -> Iterator[FieldError]:
    """Requested settings that have no effect. A value that was not requested does not count."""
    mine, theirs = config.as_dict(), GRPOConfig.model_validate(unasked).as_dict()
    for name in fields():
        if value_at(mine, name) != value_at(theirs, name) and (why := learner.unread(name, config)):
            yield FieldError(name, why)


def _reward_errors(config: GRPOConfig, runtime: str) -> list[FieldError]:
    """The reward has to be there, to take its options, and to find the judge that it asks: found here and not in the
    first slice."""
    wrong = reward_fields(config.reward, config.reward_options, has_model=calls_model(runtime))
    return [FieldError(name, text) for name, text in wrong.items()]


def _warnings(config: GRPOConfig) -> list[str]:
    warnings = []
    if config.shaping.rule == "naive" and config.reward == "shaped":
        warnings.append("Naive shaping pays every call and is farmed by long episodes; strict pays once.")
    if config.advantage_filter == "positive":
        warnings.append("Learning from positive advantages only prefers risk where rewards are noisy.")
    if config.adv_eps < 0.01 and config.scale_rewards == "group" and config.reward == "shaped":
        warnings.append("With a spread floor near 0, step costs become full advantages in groups where all fail.")
    if config.num_iterations > 1 and config.loss_type == "reinforce":
        warnings.append("Loss reinforce has no importance ratio: more than one inner epoch is off-policy.")
    return warnings


def _numbers_given_as_flags(values: Mapping[str, Any], model: type[BaseModel], prefix: str = "") -> list[FieldError]:
    """true and false pass for 1 and 0 in Python; in a configuration they are a mistake."""
    errors: list[FieldError] = []
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            continue
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, Mapping):
            errors += _numbers_given_as_flags(value, inner, f"{prefix}{name}.")
        elif isinstance(value, bool) and inner is not bool:
            errors.append(FieldError(f"{prefix}{name}", f"{prefix}{name} must not be true or false."))
    return errors


def _field_error(details: Mapping[str, Any]) -> FieldError:
    path = [str(part) for part in details["loc"]]
    name = ".".join(path)
    kind, got = details["type"], _quoted(details["input"])
    siblings, info = _field(path)
    if kind == "extra_forbidden":
        return FieldError(name, f"Unknown key {_quoted(path[-1])}{_similar(path[-1], siblings)}.")
    return FieldError(name, f"{name} must be {_expected(kind, details, info)}; got {got}.")


def _expected(kind: str, details: Mapping[str, Any], info: FieldInfo | None) -> str:
    """Description of the values that the field accepts."""
    if kind == "literal_error":
        return "one of " + str(details["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
    if kind.startswith(("int", "float", "finite")):
        whole = kind.startswith("int")
        return "a whole number" if whole else "a number"
    if kind.startswith("bool"):
        return "true or false"
    if kind.startswith("string"):
        return "text of 1 to 100 characters" if kind != "string_type" else "text"
    if kind.startswith(("model", "dict")):
        return "an object"
    return _range(info) if info is not None else "valid"


def _range(info: FieldInfo) -> str:
    bounds = {type(mark): getattr(mark, type(mark).__name__.lower()) for mark in info.metadata if type(mark) in _BOUNDS}
    if bounds.keys() == {Ge, Le}:
        return f"between {_number(bounds[Ge])} and {_number(bounds[Le])}"
    return " and ".join(f"{_BOUNDS[kind]} {_number(value)}" for kind, value in bounds.items())


def _field(path: Sequence[str]) -> tuple[list[str], FieldInfo | None]:
    """(names beside the field, the field or None where there is no such) at a path into ``GRPOConfig``."""
    model: type[BaseModel] = GRPOConfig
    for part in path[:-1]:
        model = cast(type[BaseModel], model.model_fields[part].annotation)
    return list(model.model_fields), model.model_fields.get(path[-1])


def _similar(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _number(value: Any) -> str:
    whole = isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000)
    return f"{value:,}" if whole else f"{value:g}"


def _quoted(value: Any) -> str:
    """A value as a message may have it: JSON, cut to 60 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
