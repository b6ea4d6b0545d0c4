"""The curator: which proposed changes go into a playbook, which wait for a person, and which are refused.

A batch adds, updates, removes and merges single items, and then takes out those that were measured to do harm and the
weakest above the limit. It never rewrites the whole: one that would delete more than a fifth of the items or three
tenths of the text is left to a person (context collapse: 18,282 tokens became 122, arXiv 2510.04618).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from experiences.learning.lessons.guards import Runs
from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.lessons.similarity import ALIKE, most_alike, similarity
from experiences.learning.playbooks.deltas import SETTLED, WAITING, Change, Curated, Delta, DeltaOutcome, State
from experiences.learning.playbooks.effects import ItemEffect
from experiences.learning.playbooks.guards import COPIED, category_fault, copied, text_fault
from experiences.learning.playbooks.items import PlaybookItem, section_of, size

DELETED_ITEMS, DELETED_TEXT = 0.2, 0.3  # a batch that takes out a larger share is a rewrite
RAISED: Final = 0.1  # of what is missing to certainty, when an item is proposed again
NO_PLACE: Final = "the playbook is full, and its weak items make room for {places} new ones at a time"
FULL: Final = "the playbook is full, and of all its items this one is the weakest"
HARMFUL: Final = (
    "measured to do harm: {share:.1%} of {n:,} executions with it succeeded and {other:.1%} of {m:,} without it, a"
    " difference of {low:+.1%} to {high:+.1%} (95 %, over all looks)"
)
NO_EFFECTS: Final[Mapping[str, ItemEffect]] = MappingProxyType({})
REWRITE: Final = "together these changes delete {items:.0%} of the items and {text:.0%} of the text"


@dataclass(frozen=True, slots=True)
class CuratorRules:
    """``min_confidence``: applied from here on. ``review_floor``: below it a change is rejected. ``untrusted``: runs of
    words that are in texts of users and tools. ``guarded``: whether a large deletion needs a person. ``functions``:
    names that no item may order a call of. ``held``: why every change waits for a person; "" if none has to.
    ``places``: how many items a batch may add; None: any number."""

    min_confidence: float = 0.7
    review_floor: float = 0.4
    max_sections: int = 20
    untrusted: Runs = frozenset()
    guarded: bool = True
    functions: frozenset[str] = frozenset()
    held: str = ""
    places: int | None = None


def curate(
    sections: Sequence[PlaybookItem],
    deltas: Sequence[Delta],
    rules: CuratorRules,
    new_id: Callable[[], str],
    effects: Mapping[str, ItemEffect] = NO_EFFECTS,
) -> Curated:
    """The playbook after a batch. ``new_id`` gives a name that was never given before; ``effects`` are what items were
    measured to add, by their ids."""
    batch = _PlaybookBatch(list(sections), rules, new_id, effects)
    verdicts = [batch.take(index, delta) for index, delta in enumerate(deltas)]
    if rules.guarded and (why := _rewrite(sections, batch.changes)):
        return _left_to_a_person(sections, verdicts, why)
    pruned = batch.prune(len(sections))
    kept = [
        DeltaOutcome(State.REJECTED, pruned[verdict.section])
        if verdict.state in SETTLED and verdict.section in pruned
        else verdict
        for verdict in verdicts
    ]
    return Curated(tuple(batch.sections), tuple(kept), tuple(batch.changes))


def _left_to_a_person(sections: Sequence[PlaybookItem], verdicts: Sequence[DeltaOutcome], why: str) -> Curated:
    return Curated(
        tuple(sections),
        tuple(DeltaOutcome(State.REVIEW, why) if verdict.state in SETTLED else verdict for verdict in verdicts),
    )


class _PlaybookBatch:
    """A playbook under change."""

    def __init__(
        self,
        sections: list[PlaybookItem],
        rules: CuratorRules,
        new_id: Callable[[], str],
        effects: Mapping[str, ItemEffect],
    ) -> None:
        self.sections, self.rules, self.new_id, self._effects = sections, rules, new_id, effects
        self.changes: list[Change] = []
        self._new: set[str] = set()
        self._given = 0  # of the places for added items

    def take(self, index: int, delta: Delta) -> DeltaOutcome:
        """Applies one delta, or says why not."""
        verdict = self._barred(delta)
        if delta.type == "add" and (verdict is None or verdict.state in WAITING) and not self._placed(delta):
            return DeltaOutcome(State.REJECTED, NO_PLACE.format(places=self.rules.places))
        if verdict is not None:
            return verdict
        if delta.type == "add":
            return self._add(index, delta)
        return self._update(index, delta) if delta.type == "update" else self._remove(index, delta)

    def _placed(self, delta: Delta) -> bool:
        """True if an added item has a place. An item that is there already needs none."""
        if self.rules.places is None or self._twin(delta.content) is not None:
            return True
        self._given += 1
        return self._given <= self.rules.places

    def _barred(self, delta: Delta) -> DeltaOutcome | None:
        """The outcome of a delta that no playbook may take, None for others. Order of checks: form, trust,
        confidence."""
        if fault := self._fault(delta):
            return DeltaOutcome(State.REJECTED, fault)
        if delta.type != "remove" and (why := suspicion(delta.content, self.rules.functions)):
            return DeltaOutcome(State.QUARANTINED, why)
        if delta.type != "remove" and copied(delta.content, self.rules.untrusted):
            return DeltaOutcome(State.QUARANTINED, COPIED)
        if delta.confidence < self.rules.review_floor:
            return DeltaOutcome(State.REJECTED, f"its confidence {delta.confidence:.2f} is too low for a review")
        if self.rules.held:
            return DeltaOutcome(State.QUARANTINED, self.rules.held)
        if delta.confidence < self.rules.min_confidence:
            wanted = self.rules.min_confidence
            return DeltaOutcome(State.REVIEW, f"its confidence is {delta.confidence:.2f}; {wanted:.2f} are needed")
        return None

    def _fault(self, delta: Delta) -> str:
        if not 0.0 <= delta.confidence <= 1.0:
            return "its confidence is not between 0 and 1"
        if delta.type != "add" and section_of(self.sections, delta.target) is None:
            return f"there is no item {delta.target or 'without a name'}"
        if delta.type == "remove":
            return ""
        return text_fault(delta.content) or ("" if delta.type == "update" else category_fault(delta.category))

    def _add(self, index: int, delta: Delta) -> DeltaOutcome:
        if (twin := self._twin(delta.content)) is not None:
            return self._merge(index, delta, twin)
        assert delta.category is not None
        made = PlaybookItem(self.new_id(), delta.category, delta.content, delta.confidence)
        self.sections.append(made)
        self._new.add(made.id)
        self.changes.append(Change(made.id, "added", None, made, index))
        return DeltaOutcome(State.APPLIED, section=made.id)

    def _merge(self, index: int, delta: Delta, twin: PlaybookItem) -> DeltaOutcome:
        """A repeated proposal: the item's support rises by one, and its confidence a little."""
        certain = max(twin.confidence, delta.confidence)
        merged = replace(twin, confidence=round(certain + RAISED * (1 - certain), 4), support=twin.support + 1)
        self._put(merged, "merged", index)
        return DeltaOutcome(State.MERGED, f"it says what {twin.id} says", twin.id)

    def _update(self, index: int, delta: Delta) -> DeltaOutcome:
        old = section_of(self.sections, delta.target)
        assert old is not None
        if (twin := self._twin(delta.content, but=old.id)) is not None:
            return DeltaOutcome(State.REJECTED, f"it says what {twin.id} says already", twin.id)
        new = replace(old, content=delta.content, category=delta.category or old.category, confidence=delta.confidence)
        if new == old:
            return DeltaOutcome(State.REJECTED, "it changes nothing", old.id)
        self._put(new, "updated", index)
        return DeltaOutcome(State.APPLIED, section=old.id)

    def _remove(self, index: int, delta: Delta) -> DeltaOutcome:
        old = section_of(self.sections, delta.target)
        assert old is not None
        self._drop(old, "removed", index)
        return DeltaOutcome(State.APPLIED, section=old.id)

    def prune(self, before: int) -> dict[str, str]:
        """Takes out what was measured to do harm, at most a fifth of what there was, and then the weakest above the
        limit: as many as came in, and where the limit itself was lowered a fifth of what there was each time, so that
        this is no rewrite either. Returns what went, with the reason for those who proposed it."""
        fifth = max(int(DELETED_ITEMS * before), 1)
        harmful = sorted(filter(self._harms, self.sections), key=lambda one: self._effects[one.id].sequence_high)[
            :fifth
        ]
        gone = {item.id: harm_of(self._effects[item.id]) for item in harmful}
        for one in harmful:
            self._forget(one, gone[one.id])
        excess = min(max(0, len(self.sections) - self.rules.max_sections), max(len(self._new), fifth))
        weakest = sorted(self.sections, key=self._strength)[:excess]
        for one in weakest:
            self._forget(one, FULL)
        return gone | {item.id: FULL for item in weakest}

    def _effect(self, item: PlaybookItem) -> ItemEffect | None:
        """The measured effect of its present text; None for a text that this batch changed, which was never tried."""
        known = self._effects.get(item.id)
        updated = any(change.section == item.id and change.action == "updated" for change in self.changes)
        return None if known is None or updated or not known.known else known

    def _harms(self, item: PlaybookItem) -> bool:
        effect = self._effect(item)
        return effect is not None and effect.harms

    def _strength(self, item: PlaybookItem) -> tuple[int, float]:
        return strength(item, self._effect(item))

    def _forget(self, item: PlaybookItem, reason: str) -> None:
        """Takes an item out as if the batch had never touched it; one that came with the batch was never there."""
        mine = [change for change in self.changes if change.section == item.id]
        self.changes = [change for change in self.changes if change.section != item.id]
        self.sections.remove(item)
        before = mine[0].before if mine else item
        if before is not None:
            self.changes.append(Change(item.id, "pruned", before, None, reason=reason))

    def _twin(self, content: str, but: str = "") -> PlaybookItem | None:
        others = [section for section in self.sections if section.id != but]
        at, found = most_alike(content, [item.content for item in others])
        return others[at] if found >= ALIKE else None

    def _put(self, new: PlaybookItem, action: str, index: int | None) -> None:
        at = next(at for at, one in enumerate(self.sections) if one.id == new.id)
        self.changes.append(Change(new.id, action, self.sections[at], new, index))
        self.sections[at] = new

    def _drop(self, old: PlaybookItem, action: str, index: int | None) -> None:
        self.sections = [section for section in self.sections if section.id != old.id]
        self.changes.append(Change(old.id, action, old, None, index))


def strength(item: PlaybookItem, effect: ItemEffect | None) -> tuple[int, float]:
    """The order of the weak. First come items that are measured to add hardly anything or to take away, then those that
    are not measured yet, by the trust that counts give them. Then follow those that add something, and last those
    that surely help."""
    if effect is None or not effect.known:
        return 1, item.trust
    return (3 if effect.helps else 0 if effect.weak else 2), effect.estimate


def harm_of(effect: ItemEffect) -> str:
    """Why an item is taken out, with its figures."""
    with_item, left, (low, high) = effect.included, effect.left_out, effect.sequence
    return HARMFUL.format(share=with_item.share, n=with_item.n, other=left.share, m=left.n, low=low, high=high)


def _rewrite(sections: Sequence[PlaybookItem], changes: Sequence[Change]) -> str:
    """Why the changes are a rewrite; "" if they are none. An update loses as much text as it is unlike the old one."""
    if not sections:
        return ""
    gone = sum(change.after is None for change in changes)
    lost = sum(_lost(change) for change in changes if change.before is not None)
    items, text = gone / len(sections), lost / max(size(sections), 1)
    if items <= DELETED_ITEMS and text <= DELETED_TEXT:
        return ""
    return REWRITE.format(items=items, text=text)


def _lost(change: Change) -> float:
    assert change.before is not None
    kept = 0.0 if change.after is None else similarity(change.before.content, change.after.content)
    return len(change.before.content) * (1 - kept)
