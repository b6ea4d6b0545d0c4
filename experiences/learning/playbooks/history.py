"""Differences between two versions of a playbook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiences.learning.playbooks.deltas import Change
from experiences.learning.playbooks.items import PlaybookItem, in_order, section_of


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """One item that two versions do not share. ``kind`` is "added", "removed" or "changed"."""

    section: str
    kind: str
    before: PlaybookItem | None
    after: PlaybookItem | None


def difference(before: Sequence[PlaybookItem], after: Sequence[PlaybookItem]) -> list[ItemDifference]:
    """The items that came, went or changed, in the order in which they are read."""
    ids = dict.fromkeys(item.id for item in in_order([*before, *after]))
    pairs = [(id, section_of(before, id), section_of(after, id)) for id in ids]
    return [ItemDifference(id, _kind(old, new), old, new) for id, old, new in pairs if _fields(old) != _fields(new)]


def changes_between(before: Sequence[PlaybookItem], after: Sequence[PlaybookItem], action: str) -> list[Change]:
    """The same as changes of a new version, all of them under one name."""
    return [Change(one.section, action, one.before, one.after) for one in difference(before, after)]


def with_item(sections: Sequence[PlaybookItem], id: str, item: PlaybookItem | None) -> list[PlaybookItem]:
    """The items with one of them as it was in another version: changed, taken out, or back again."""
    others = [section for section in sections if section.id != id]
    return in_order(others if item is None else [*others, item])


def _kind(old: PlaybookItem | None, new: PlaybookItem | None) -> str:
    return "added" if old is None else "removed" if new is None else "changed"


def _fields(item: PlaybookItem | None) -> dict[str, object] | None:
    return item.stored() if item is not None else None
