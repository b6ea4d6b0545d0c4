"""A playbook as the agent reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiences.learning.playbooks.items import CATEGORIES, Category, PlaybookItem, in_order

TITLES: Final[dict[Category, str]] = {
    "strategies": "Strategies",
    "patterns": "Patterns",
    "failures": "Failures",
    "learnings": "Learnings",
}


def context_of(sections: Sequence[PlaybookItem]) -> str:
    """The text that is put into an agent's context. It depends on the items alone and not on their counts, so that one
    version has one text. An item of several lines stays one item."""
    ordered, parts = in_order(sections), []
    for category in CATEGORIES:
        lines = [f"- [{one.id}] {_indented(one.content)}" for one in ordered if one.category == category]
        if lines:
            parts.append("\n".join([f"## {TITLES[category]}", *lines]))
    return "\n\n".join(parts)


def _indented(content: str) -> str:
    return "\n  ".join(line for line in content.splitlines() if line.strip())
