"""TensorZero: a deployment as its gateway's configuration, a function with a variant for each release. Pure.

A variant has the release's model, system prompt and context. The prompt is a template that is one string literal, so
that braces in it have no meaning. The shares decide the variant of an episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from evaluation.serving.adapters.base import (
    AdapterTarget,
    AppliedPlan,
    DeploymentArm,
    DeploymentPlan,
    ServingAdapter,
    refuse_faults,
)
from evaluation.serving.releases.bundle import Bundle

CONFIG: Final = "tensorzero.toml"
RUNTIME: Final = "llm"
KINDS: Final = frozenset({"openai", "openrouter", "vllm", "ollama"})  # kinds with OpenAI's API and one key


class TensorZero(ServingAdapter):
    title: ClassVar = "TensorZero"

    def faults(self, plan: DeploymentPlan) -> list[str]:
        return [f"{arm.name} {why}." for arm in _served(plan) for why in _faults(arm.bundle)]

    def apply(self, plan: DeploymentPlan, target: AdapterTarget) -> AppliedPlan:
        refuse_faults(self.faults(plan))
        arms = _served(plan)
        files = {CONFIG: _config(plan.agent, arms)}
        files |= {_template(plan.agent, arm.name): _literal(text) for arm in arms if (text := system_of(arm.bundle))}
        keys = " and ".join(dict.fromkeys(key_of(arm.bundle) for arm in arms))
        where = f"Put these files where TensorZero's gateway reads them, with {keys} in its environment."
        plain = [arm.name for arm in arms if arm.bundle.is_played]
        without = f" It sends {', '.join(plain)} without the instructions and the tools of its philosophy."
        return AppliedPlan(where + (without if plain else ""), files)


def system_of(bundle: Bundle) -> str:
    """The system prompt with the release's context, as the built-in gateway sends it."""
    return "\n\n".join(one for one in (bundle.system.strip(), bundle.context.text_for("")) if one)


def key_of(bundle: Bundle) -> str:
    """The environment variable with the key of its endpoint: no file contains keys."""
    return f"{re.sub('[^A-Z0-9]+', '_', bundle.model.endpoint_name.upper()).strip('_') or 'MODEL'}_API_KEY"


def _served(plan: DeploymentPlan) -> list[DeploymentArm]:
    return [arm for arm in plan.arms if arm.share > 0]


def _faults(bundle: Bundle) -> Iterator[str]:
    if bundle.runtime != RUNTIME:
        yield "is no agent of a language model, which is all that TensorZero serves"
        return
    if bundle.context.rule is not None:
        yield "chooses lessons for each query by a rule, which a template can't"
    if bundle.model.kind not in KINDS or not bundle.model.base_url:
        yield f"calls an endpoint of kind {bundle.model.kind or 'none'!r}, which TensorZero can't call"
    if _has_null(bundle.model.options.get("extra", {})):
        yield "adds null to the body of its requests, which TensorZero's configuration can't hold"


def _config(agent: str, arms: list[DeploymentArm]) -> str:
    function = ["functions", agent]
    models = {arm.name: f"{agent}-{arm.name}" for arm in arms}
    lines = ["[gateway]", "observability.enabled = false  # true needs ClickHouse"]
    for arm in arms:
        of = arm.bundle.model
        provider = {"type": "openai", "model_name": of.name, "api_base": f"{of.base_url.rstrip('/')}/"}
        provider["api_key_location"] = f"env::{key_of(arm.bundle)}"
        lines += _table(["models", models[arm.name]], {"routing": ["upstream"]})
        lines += _table(["models", models[arm.name], "providers", "upstream"], provider)
    lines += _table(function, {"type": "chat"})
    shares = {arm.name: arm.share for arm in arms}
    lines += _table([*function, "experimentation"], {"type": "static", "candidate_variants": shares})
    for arm in arms:
        variant: dict[str, Any] = {"type": "chat_completion", "model": models[arm.name]}
        if body := _body(arm.bundle):
            variant["extra_body"] = [{"pointer": f"/{_escaped(name)}", "value": value} for name, value in body.items()]
        if system_of(arm.bundle):
            variant["templates"] = {"system": {"path": _template(agent, arm.name)}}
        lines += _table([*function, "variants", arm.name], variant)
    return "\n".join(lines) + "\n"


def _body(bundle: Bundle) -> dict[str, Any]:
    """The fields of each request's body besides messages and model."""
    options = bundle.model.options
    limit = {str(options.get("max_tokens_field", "max_tokens")): bundle.model.max_tokens}
    return {**dict(options.get("extra", {})), **({} if not bundle.model.max_tokens else limit)}


def _template(agent: str, arm: str) -> str:
    return f"functions/{agent}/{arm}/system.minijinja"


def _literal(text: str) -> str:
    return "{{ " + _string(text) + " }}"


# -- TOML --------------------------------------------------------------------------------------------------------------


def _table(path: list[str], values: Mapping[str, Any]) -> list[str]:
    return [
        "",
        f"[{'.'.join(map(_key, path))}]",
        *(f"{_key(name)} = {toml(one)}" for name, one in values.items()),
    ]


def toml(value: Any) -> str:
    """A JSON value without null as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _string(name)


def _string(text: str) -> str:
    """A string as JSON writes it, except for the one control character that only TOML requires to be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _escaped(name: str) -> str:
    """One part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _has_null(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_null, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_null, value))
    return value is None
