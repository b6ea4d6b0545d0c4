"""A full playbook: which item makes room for an approved one, and when a new one has no chance of a place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from experiences.learning.playbooks.curator import NO_EFFECTS, CuratorRules, curate, strength
from experiences.learning.playbooks.deltas import Change, Curated, Delta
from experiences.learning.playbooks.effects import WEAK, ItemEffect
from experiences.learning.playbooks.items import PlaybookItem

REPLACED: Final = "it made room for {new}: {why}"


def weakest_of(sections: Sequence[PlaybookItem], effects: Mapping[str, ItemEffect]) -> PlaybookItem | None:
    """The item that a new one replaces, by measured effect; None where each is measured to help."""
    found = min(sections, key=lambda item: strength(item, effects.get(item.id)), default=None)
    return None if found is None or _helps(effects.get(found.id)) else found


def curate_replacing(
    sections: Sequence[PlaybookItem],
    delta: Delta,
    rules: CuratorRules,
    new_id: Callable[[], str],
    effects: Mapping[str, ItemEffect] = NO_EFFECTS,
) -> Curated:
    """A person's change. An item that is added above ``max_sections`` takes the place of the weakest; where each item
    is measured to help, one more is left than there may be."""
    roomy = replace(rules, max_sections=max(rules.max_sections, len(sections) + 1))
    curated = curate(sections, [delta], roomy, new_id)
    if len(curated.sections) <= max(rules.max_sections, len(sections)):
        return curated
    gone = weakest_of(sections, effects)
    if gone is None:
        return curated
    reason = REPLACED.format(new=curated.verdicts[0].section, why=weakness_of(gone, effects.get(gone.id)))
    kept = tuple(item for item in curated.sections if item.id != gone.id)
    return Curated(kept, curated.verdicts, (*curated.changes, Change(gone.id, "pruned", gone, None, 0, reason)))


def weakness_of(item: PlaybookItem, effect: ItemEffect | None) -> str:
    """Why it is the weakest, with the figures that say so."""
    if effect is None or not effect.known:
        return f"no item is measured to be weak, and this one has the least trust, {item.trust:.2f}"
    seen = (
        f"{effect.included.share:.1%} of {effect.included.n:,} executions with it succeeded,"
        f" {effect.left_out.share:.1%} of {effect.left_out.n:,} without it"
    )
    by_words = "" if effect.expected is None else ", by the words of their inputs"
    return f"it adds {100 * effect.estimate:+.1f} points of success{by_words}, the least of all ({seen})"


def places(sections: Sequence[PlaybookItem], effects: Mapping[str, ItemEffect], most: int) -> int | None:
    """Number of new items that have a place now: free ones, and those of weak items. None where nothing is measured."""
    if not effects:
        return None
    weak = sum(effect.weak for item in sections if (effect := effects.get(item.id)) is not None)
    return max(0, most - len(sections) + weak)


def no_room(sections: Sequence[PlaybookItem], effects: Mapping[str, ItemEffect], most: int) -> str:
    """Why a new item has no place in the playbook now; "" if it has one. Only where effects are measured: each item is
    either not measured yet, or may add as much as a new one is expected to."""
    if places(sections, effects, most) != 0:
        return ""
    known = sum(effect.known for item in sections if (effect := effects.get(item.id)) is not None)
    untried = len(sections) - known
    measured = f"{known} of them may add {100 * WEAK:g} point of success or more by what is measured"
    waiting = f", and {untried} {'is' if untried == 1 else 'are'} not measured yet" if untried else ""
    return f"the playbook is full with {len(sections)} items: {measured}{waiting}"


def _helps(effect: ItemEffect | None) -> bool:
    return effect is not None and effect.helps
