"""Small changes of a playbook, and what became of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from experiences.learning.playbooks.items import Category, PlaybookItem

DeltaType = Literal["add", "update", "remove"]


class State(StrEnum):
    """``applied`` and ``merged`` are in the playbook and never change again; ``review`` and ``quarantined`` wait for a
    person; ``rejected`` is refused with a reason."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    MERGED = "merged"
    REVIEW = "review"
    QUARANTINED = "quarantined"
    REJECTED = "rejected"


SETTLED: Final = frozenset({State.APPLIED, State.MERGED})
WAITING: Final = frozenset({State.REVIEW, State.QUARANTINED})


@dataclass(frozen=True, slots=True)
class Delta:
    """One proposed change. ``target`` is the item that update and remove are about; ``taught_by`` the traces."""

    type: DeltaType
    confidence: float
    category: Category | None = None
    content: str = ""
    target: str = ""
    rationale: str = ""
    taught_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one item between two versions: ``before`` or ``after`` is None where the item is absent. ``reason`` is
    given for a removal that no delta requested."""

    section: str
    action: str  # added, updated, removed, merged, pruned, reverted, restored
    before: PlaybookItem | None
    after: PlaybookItem | None
    delta: int | None = None  # which of the batch did it
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeltaOutcome:
    """Outcome of a delta. ``section`` is the item that it made or changed."""

    state: State
    reason: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True)
class Curated:
    """A batch after curation: the items as they are now, a verdict for each delta, and what changed."""

    sections: tuple[PlaybookItem, ...]
    verdicts: tuple[DeltaOutcome, ...]
    changes: tuple[Change, ...] = field(default_factory=tuple)

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def count(self, states: Collection[State]) -> int:
        return sum(verdict.state in states for verdict in self.verdicts)
