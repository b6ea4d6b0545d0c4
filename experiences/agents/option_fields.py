"""Options of rewards and environments as fields of a form, made from their descriptions; JSON is the expert's way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from django import forms

from agentcore_site.console.forms import OptionsField
from agentcore_site.lib.registry import Registry
from experiences.rollouts.environments import environments
from experiences.rollouts.options import POOL, Option

POOLS: Final = {
    f"{POOL}.train": "Number of queries to learn from.",
    f"{POOL}.selection": "Number of queries on which checkpoints are compared.",
    f"{POOL}.held_out": "Number of queries for the final proof.",
}
POOL_LABELS: Final = {
    f"{POOL}.train": "Training queries",
    f"{POOL}.selection": "Selection queries",
    f"{POOL}.held_out": "Held-out queries",
}
OWN_ROWS: Final = "dataset"  # the environment whose queries come from a dataset, so that it has no pools


@dataclass(frozen=True)
class OptionInput:
    """One option as an input. ``kind``: "flag", "choice", "number", "names", "object" (JSON) or "text"."""

    name: str
    option: Option

    @property
    def kind(self) -> str:
        if isinstance(self.option.default, bool):
            return "flag"
        if self.option.choices:
            return "choice"
        if self.option.low is not None:
            return "number"
        if isinstance(self.option.default, Mapping):
            return "object"
        return "names" if isinstance(self.option.default, tuple | list) else "text"

    @property
    def label(self) -> str:
        return POOL_LABELS.get(self.name) or self.name.replace(".", " ").replace("_", " ").capitalize()

    def shows(self, value: Any) -> bool:
        """True if the input can show the value. A text is always shown: a person may have typed it."""
        kinds = {"flag": bool, "number": int | float, "names": list | tuple, "object": dict}
        return isinstance(value, str | kinds.get(self.kind, str))

    def text(self, value: Any) -> str:
        """The value as the input holds it."""
        if value is None:
            return ""
        if self.kind == "names" and not isinstance(value, str):
            return ", ".join(map(str, value))
        if isinstance(value, dict):
            return json.dumps(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def value(self, text: str) -> Any:
        """The value of what was typed. What can't be read stays a text, which the service refuses with its reason."""
        if self.kind == "names":
            return [name.strip() for name in text.split(",") if name.strip()]
        if self.kind == "flag":
            return {"true": True, "false": False}.get(text, text)
        for read in {"number": (int, float), "object": (json.loads,)}.get(self.kind, ()):
            with suppress(ValueError):
                return read(text)
        return text


def option_inputs(registry: Registry[Any], name: str) -> list[OptionInput]:
    """The inputs of a plugin's options; none for a plugin that is not there."""
    if name not in registry.names():
        return []
    plugin = registry.get(name)
    known: Mapping[str, Option] = getattr(plugin, "options", None) or {
        option: Option(text) for option, text in plugin.option_help.items()
    }
    inputs = [OptionInput(option, described) for option, described in known.items()]
    if registry is environments and name != OWN_ROWS:
        inputs += [OptionInput(option, Option(text, None, 1, 1_000_000)) for option, text in POOLS.items()]
    return inputs


def typed_options(data: Mapping[str, Any], field: str, registry: Registry[Any]) -> dict[str, Any] | None:
    """The options that were typed by inputs; None where JSON was chosen, or the request has no inputs."""
    shown = data.get(f"{field}.shown")
    if shown is None or data.get(f"{field}.as_json"):
        return None
    options: dict[str, Any] = {}
    for one in option_inputs(registry, shown):
        if text := data.get(f"{field}.{one.name}", "").strip():
            outer, _, inner = one.name.partition(".")
            if inner:
                options.setdefault(outer, {})[inner] = one.value(text)
            else:
                options[outer] = one.value(text)
    return options


class OptionsWidget(forms.Textarea):
    """Inputs for the options of the plugin whose name the form's field ``chooser`` holds. The inputs count, unless JSON
    was chosen; a request without inputs sends JSON."""

    def __init__(self, registry: Registry[Any], chooser: str) -> None:
        super().__init__(attrs={"rows": 5, "spellcheck": "false", "class": "code", "placeholder": "{}"})
        self.registry, self.chooser = registry, chooser

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        options = typed_options(data, name, self.registry)
        return super().value_from_datadict(data, files, name) if options is None else options


class PluginOptionsField(OptionsField):
    """A JSON object, typed as such or by inputs."""

    def __init__(self, registry: Registry[Any], chooser: str, **options: Any) -> None:
        super().__init__(required=False, widget=OptionsWidget(registry, chooser), **options)

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, dict) else super().to_python(value)

    def clean(self, value: Any) -> dict[str, Any]:
        return value if isinstance(value, dict) else super().clean(value)


def options_context(field: str, registry: Registry[Any], plugin: str, value: Any) -> dict[str, Any]:
    """Context of the inputs' template. ``value``: the options, or the JSON that was typed."""
    inputs = option_inputs(registry, plugin)
    options = value if isinstance(value, dict) else {}
    flat = {
        f"{outer}.{inner}" if inner else outer: one
        for outer, held in options.items()
        for inner, one in (held.items() if outer == POOL and isinstance(held, dict) else [("", held)])
    }
    by_name = {one.name: one for one in inputs}
    typed = isinstance(value, str) and bool(value.strip())
    beyond = [name for name, held in flat.items() if name not in by_name or not by_name[name].shows(held)]
    return {
        "field": field,
        "plugin": plugin,
        "inputs": [{"of": one, "text": one.text(flat.get(one.name))} for one in inputs],
        "as_json": typed or bool(beyond),
        "json": value if typed else json.dumps(options, indent=2) if options else "",
    }
