"""The page of settings, written from the schema: ``python -m training.reference > docs/configuration.md``."""

from __future__ import annotations

import json
import sys
from typing import Any

from training.config import GRPOConfig
from training.presets import PRESETS
from training.schema import Field, counts_for, fields

HEAD = """# Configuration

One schema for the form, REST, JSON-RPC and `manage.py train --config FILE` (a JSON object; a dotted key is a
key of a nested object). Unknown keys are refused. What is left out comes from the preset. This page is written from
the schema: `python -m training.reference > docs/configuration.md`.

What is for *actions* counts for agents that choose actions only. For an agent of a language model, which is told
lessons, it changes nothing: the launch form hides it, and every other interface warns. `baseline: value` is refused.
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
    whom = "all" if counts_for(field.name, "llm") else "actions"
    return f"| `{field.name}` | {shown} | {allowed} | {whom} | {effect} |"


def _at(values: dict[str, Any], dotted: str) -> Any:
    found: Any = values
    for part in dotted.split("."):
        found = found[part]
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
