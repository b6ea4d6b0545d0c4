"""How a model was asked and why its answer ended, kept with the step that came of each call.

The first call of a rollout is kept whole: ``temperature``, ``top_p``, ``max_tokens`` (that it may answer at most), as
far as they were set. Of a later one only what differs from the first is kept, None where it was not set there.
``finish`` is left out where an answer ended by itself; "" is one whose service did not say.
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
        """What is kept of a call. ``finish``: None where no answer came."""
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
    """How the first call among stored steps was asked; {} where they do not say."""
    first: Mapping[str, Any] = next((one["call"] for one in steps if one.get("call")), {})
    return {name: first[name] for name in SETTINGS if name in first}


def differing(step: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be said of a stored step's call: the settings that are others than ``first``, and why it ended."""
    call = step.get("call") or {}
    return {name: value for name, value in call.items() if name == FINISH or value != first.get(name)}
