"""Requests and their outcomes, by caller and interface."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

KEPT: Final = 40  # examples of each kind that are printed


@dataclass
class Tally:
    """Counts of one caller at one interface, with examples of what is wrong."""

    interface: str
    caller: str
    requests: int = 0
    limited: int = 0  # answers of 429
    unsent: int = 0  # what the client itself refused to send
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)  # 5xx, undocumented, foreign
    examples: dict[str, str] = field(default_factory=dict)

    def answer(self, status: int, text: str, foreign: list[str], what: str) -> None:
        """Counts one answer. ``what``: the request in short, for the example."""
        self.requests += 1
        self.statuses[status] += 1
        self.limited += status == 429
        if status >= 500:
            self.fault("5xx", f"{status} {what}", text[:300])
        for word in foreign:
            if word in text:
                self.fault("foreign", f"{word} {what}", "")

    def fault(self, kind: str, what: str, detail: str) -> None:
        self.wrong[kind] += 1
        if sum(key.startswith(kind) for key in self.examples) < KEPT:
            self.examples.setdefault(f"{kind}: {what[:300]}", detail[:700])
