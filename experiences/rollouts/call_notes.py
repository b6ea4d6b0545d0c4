"""Sampling settings and finish reasons of model calls, stored with the step of each call.

The first call of a rollout is stored whole: ``temperature``, ``top_p`` and ``max_tokens``, if they were set. A later
call stores only differences from the first, None for a setting that was not set. ``finish`` is absent for a normal end;
"" means that the service gave no reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SETTINGS: Final = ("temperature", "top_p", "max_tokens")
FINISH: Final = "finish"
BY_ITSELF: Final = frozenset({"stop", "tool_calls", "function_call", "end_turn", "tool_use"})
WORD: Final = re.compile(r"[A-Za-z][A-Za-z_]{0,39}")  # of a provider's own words none is kept
OTHER: Final = "other"


@dataclass
class CallNotes:
    """Compares the calls of one rollout with its first one."""

    _first: dict[str, float] | None = None

    def noted(self, asked: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        """The stored note of a call. ``finish`` is None if there was no answer."""
        given = {name: _number(asked.get(name)) for name in SETTINGS}
        own = {name: value for name, value in given.items() if value is not None}
        note: dict[str, Any] = dict(own)
        if self._first is None:
            self._first = own
        else:
            note = {name: own.get(name) for name in SETTINGS if own.get(name) != self._first.get(name)}
        if finish is not None and finish not in BY_ITSELF:
            note[FINISH] = finish if not finish or WORD.fullmatch(finish) else OTHER
        return note


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def settings_of(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Settings of the first call among stored steps; {} if the steps have none."""
    first: Mapping[str, Any] = next((step["call"] for step in steps if step.get("call")), {})
    return {name: first[name] for name in SETTINGS if name in first}


def differing(step: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """Shown differences of a stored step's call: settings other than in ``first``, and its finish reason."""
    call = step.get("call") or {}
    return {name: value for name, value in call.items() if name == FINISH or value != first.get(name)}
