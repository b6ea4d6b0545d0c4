"""The page of settings, written from the schema: ``python -m training.config.reference > docs/configuration.md``."""

from __future__ import annotations

import json
import sys
from typing import Any

from training.config.applicability import counts_for
from training.config.form import Field, fields
from training.config.presets import PRESETS
from training.schema import GRPOConfig

HEAD = """# Configuration

One schema for the form, REST, JSON-RPC and `manage.py train --config FILE` (a JSON object; a dotted key is a
key of a nested object). Unknown keys are refused. What is left out comes from the preset. This page is written from
the schema: `python -m training.config.reference > docs/configuration.md`.

What is for *actions* counts for agents that choose actions only, and what is for *lessons* for agents of language
models, which are told lessons, and *weights* for those whose own weights are learned (what is for *all* counts there
too; of the rest [the launch form](weights.md) tells); *lessons, grpo* says that algorithm tfgrpo does not read it,
*lessons, tfgrpo* that grpo does not. The launch form hides what changes nothing, and every interface
refuses a value for it that differs from the preset's. Two more cases are refused:
`baseline: value` for agents that are told lessons, and settings of the gradient with `context.update_rule:
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
    chosen, told, told_all = counts_for(name, "action"), counts_for(name, "llm"), counts_for(name, "llm", "tfgrpo")
    weights = counts_for(name, "llm", learner="weights")
    if not (told or told_all):
        return "actions, weights" if chosen and weights else "weights" if weights else "actions"
    lessons = "lessons" if told and told_all else "lessons, grpo" if told else "lessons, tfgrpo"
    return lessons if not chosen else "all" if told_all else f"actions; {lessons}"


def _at(values: dict[str, Any], dotted: str) -> Any:
    found: Any = values
    for part in dotted.split("."):
        found = found[part]
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
