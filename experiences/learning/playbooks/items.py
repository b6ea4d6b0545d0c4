"""The items of a playbook, and how far each can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

Category = Literal["strategies", "patterns", "failures", "learnings"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
TITLES: Final[Mapping[str, str]] = {name: name.capitalize() for name in CATEGORIES}
MAX_CONTENT: Final = 1_000  # characters
OPINION: Final = 4.0  # outcomes that an item's own confidence counts for
Z: Final = 1.645  # one-sided 95 %


@dataclass(frozen=True, slots=True)
class PlaybookItem:
    """One item. ``id`` is its name for ever: never changed and never given again.

    ``confidence`` is what its author thought of it; ``support`` how often it was proposed. ``usage``, ``helpful`` and
    ``harmful`` count executions that had it in their context, all of them and by outcome.
    """

    id: str
    category: Category
    content: str
    confidence: float = 0.7
    support: int = 1
    usage: int = 0
    helpful: int = 0
    harmful: int = 0

    @property
    def trust(self) -> float:
        """The lower bound of the share of good outcomes: of the Beta distribution of outcomes and opinion, by its
        normal approximation. Many good outcomes raise it, few of either kind leave it low."""
        good = self.helpful + OPINION * self.confidence
        bad = self.harmful + OPINION * (1 - self.confidence)
        n = good + bad
        return good / n - Z * math.sqrt(good * bad / (n * n * (n + 1)))

    def stored(self) -> dict[str, Any]:
        """Fields that a version stores; counts go on changing and are stored elsewhere."""
        kept = asdict(self)
        return {name: kept[name] for name in ("id", "category", "content", "confidence", "support")}

    @classmethod
    def of(cls, stored: Mapping[str, Any], counts: Mapping[str, int] | None = None) -> PlaybookItem:
        """Restores the value of ``stored``, with the current counts."""
        return cls(**{**stored, **(counts or {})})


def section_of(sections: Iterable[PlaybookItem], id: str) -> PlaybookItem | None:
    return next((section for section in sections if section.id == id), None)


def size(sections: Iterable[PlaybookItem]) -> int:
    """Characters of all items."""
    return sum(len(section.content) for section in sections)


def number(id: str) -> int:
    """The number in an item's id: "s12" is 12."""
    return int(id[1:]) if id[1:].isdecimal() else 0


def in_order(sections: Sequence[PlaybookItem]) -> list[PlaybookItem]:
    """By category, the oldest first: the same items are always in the same order."""
    return sorted(sections, key=lambda section: (CATEGORIES.index(section.category), number(section.id)))
