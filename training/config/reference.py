"""The page of settings, written from the schema. The page names the command that writes it."""

from __future__ import annotations

import json
import sys
from typing import Any

from training.config.applicability import counts_for
from training.config.form import Field, fields
from training.config.presets import PRESETS
from training.schema import GRPOConfig

HEAD = """# Configuration

One schema for the form, REST, JSON-RPC and `manage.py train … --config FILE` (a JSON object; a dotted key is a
key of a nested object). Unknown keys are refused. What is left out comes from the preset. This page is written from
the schema: `.venv/bin/python -m training.config.reference > docs/configuration.md`.

A setting for *actions* counts only for agents that choose actions. A setting for *lessons* counts for agents of
language models, whose context holds lessons; *weights* for those whose own weights are learned. A setting for *all*
counts there too; [the launch form](weights.md) shows the rest. *lessons, grpo* says that of `grpo`, `tfgrpo` and `gepa`
only algorithm `grpo` reads the setting. The launch form hides a setting that changes nothing. Every interface
refuses a value for such a setting that differs from the preset's. Two more cases are refused:
`baseline: value` for agents that learn lessons, and settings of the gradient with `context.update_rule:
ridge_thompson`. `gamma` counts for every agent where `shaping.rule` is `potential`.
"""


def page() -> str:
    """The whole page as Markdown."""
    presets = [f"| `{preset.name}` | {preset.when} |" for preset in PRESETS.values()]
    defaults = GRPOConfig().model_dump(mode="json")
    settings = [_row(field, _at(defaults, field.name)) for field in fields().values()]
    return "\n".join(
        [
            HEAD,
            "## Presets\n\n| name | when |\n|---|---|",
            *presets,
            "\n## Settings\n\n| key | default | range | for | effect |\n|---|---|---|---|---|",
            *settings,
            "",
        ]
    )


def _row(field: Field, default: Any) -> str:
    shown = "none" if default is None else f"`{json.dumps(default) if isinstance(default, bool) else default}`"
    allowed = field.range or ", ".join(f"`{choice}`" for choice in field.choices)
    effect = field.description.replace("|", "\\|")
    whom = _whom(field.name)
    return f"| `{field.name}` | {shown} | {allowed} | {whom} | {effect} |"


def _whom(name: str) -> str:
    chosen, of_contexts = counts_for(name, "action"), ("grpo", "tfgrpo", "gepa")
    reading = [algorithm for algorithm in of_contexts if counts_for(name, "llm", algorithm)]
    weights = counts_for(name, "llm", learner="weights")
    if not reading:
        return "actions, weights" if chosen and weights else "weights" if weights else "actions"
    if reading == list(of_contexts):
        return "all" if chosen else "lessons"
    return f"{'actions; ' if chosen else ''}lessons, {', '.join(reading)}"


def _at(values: dict[str, Any], dotted: str) -> Any:
    found: Any = values
    for part in dotted.split("."):
        found = found[part]
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
