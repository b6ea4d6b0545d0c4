"""The JSON Schemas of ``docs/events``. They tolerate unknown fields, because other programs add their own."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from agentcore_site.env import ROOT

FOLDER: Final = ROOT / "docs" / "events"
MOST_SHOWN: Final = 300


@cache
def schema_of(subject: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{subject}.json").read_text(encoding="utf-8"))
    return found


@cache
def validator_of(subject: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(subject))


def fault_of(subject: str, payload: Any) -> str:
    """The first fault of a payload, in words; "" if it is valid."""
    error = next(validator_of(subject).iter_errors(payload), None)
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path) or "the payload"
    return f"{place}: {error.message}"[:MOST_SHOWN]
