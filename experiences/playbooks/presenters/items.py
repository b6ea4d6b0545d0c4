"""Playbooks as people read them: the verdict in words, items with their outcomes and who taught them, differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rest_framework import serializers

from agentcore_site.console import svg
from agentcore_site.console.svg import Picture
from agentcore_site.lib.statistics import wilson_interval
from agentcore_site.rest.shapes import Shape
from agentcore_site.templatetags.figures import count, percent, points
from agentcore_site.tenancy.actors import Actor
from budgets.llm.tokens import middle
from experiences.learning.playbooks.deltas import Change
from experiences.learning.playbooks.effects import ItemEffect
from experiences.learning.playbooks.history import ItemDifference
from experiences.learning.playbooks.items import CATEGORIES, TITLES, PlaybookItem
from experiences.lessons.presenters import LessonVerdict, Piece, difference
from experiences.models import Evolution, Playbook, PlaybookChange
from experiences.playbooks.item_effects import effects_of
from experiences.playbooks.selectors import Blame, blame, playbooks_visible

MEANINGS: Final = {
    "strategies": "what worked",
    "patterns": "recurring patterns",
    "failures": "what goes wrong, and how to avoid it",
    "learnings": "facts about the task and its tools",
}
MARKS: Final = {"added": "plus", "removed": "cross", "changed": "edit", "merged": "check"}
WORDS: Final = {"added": "Added", "removed": "Removed", "changed": "Changed", "merged": "Repeated"}
TAKEN: Final = ("applied", "merged")
WAITING: Final = ("review", "quarantined")
NOT_YET: Final = "Services receive the playbook when a release of it is deployed."


@dataclass(frozen=True)
class ItemRow:
    """One item with all that a list shows of it. ``low`` and ``high``: the 95 % interval of its share of successes;
    ``effect`` is what it adds to it, where executions without it are there to compare with."""

    section: PlaybookItem
    blame: Blame
    low: float | None
    high: float | None
    picture: Picture | None
    effect: ItemEffect | None = None

    @property
    def effect_words(self) -> str:
        """The item's effect, in a sentence; "" where nothing is known."""
        one = self.effect
        if one is None:
            return ""
        seen = (
            f"{percent(one.included.share, 0)} of {count(one.included.n)} executions with it succeeded,"
            f" {percent(one.left_out.share, 0)} of {count(one.left_out.n)} without it by chance"
        )
        low, high = one.sequence
        added = (
            f"{points(one.difference)} points (95 % interval {points(one.low)} to {points(one.high)} at this analysis,"
            f" {points(low)} to {points(high)} over all analyses)"
        )
        if not one.known:
            return f"{seen}: too few to measure the effect."
        verdict = "it helps" if one.helps else "it does harm" if one.harms else "not decided yet"
        return f"{seen}: {added}, {verdict}."

    @property
    def effect_picture(self) -> Picture | None:
        one = self.effect
        if one is None or not one.known:
            return None
        return svg.whisker(one.difference, one.low, one.high, 0.5, label=self.effect_words)

    @property
    def used_words(self) -> str:
        """The share of answers that used the item; "" where no agent says so."""
        if self.effect is None or not self.effect.reporting:
            return ""
        return f"{count(self.effect.used)} of {count(self.effect.reporting)} answers that name what they used"

    @property
    def trust_words(self) -> str:
        """The meaning of the item's trust, and its use."""
        return (
            "The lower bound of its share of good outcomes. Where there is no room, items that were measured to be"
            " better left out go first, and then the least trusted ones."
        )

    @property
    def effect_tone(self) -> str:
        return "" if self.effect is None else "good" if self.effect.helps else "bad" if self.effect.harms else ""

    @property
    def outcomes(self) -> int:
        return self.section.helpful + self.section.harmful

    @property
    def share(self) -> float | None:
        return self.section.helpful / self.outcomes if self.outcomes else None

    @property
    def words(self) -> str:
        """Its outcomes in a sentence."""
        if not self.outcomes:
            return "No execution with this item has ended yet."
        ended = f"{count(self.section.helpful)} of {count(self.outcomes)} executions with it in their context succeeded"
        return f"{ended}, {percent(self.share, 0)} (95 % interval {percent(self.low, 0)} to {percent(self.high, 0)})."


@dataclass(frozen=True)
class Group:
    """The items of one category."""

    key: str
    title: str
    meaning: str
    items: list[ItemRow]


@dataclass(frozen=True)
class Differing:
    """One item that two versions do not share, with how its text became another."""

    section: str
    kind: str
    before: PlaybookItem | None
    after: PlaybookItem | None
    pieces: Sequence[Piece]

    @property
    def icon(self) -> str:
        return MARKS[self.kind]

    @property
    def word(self) -> str:
        return WORDS[self.kind]

    @property
    def category(self) -> str:
        one = self.after or self.before
        assert one is not None
        return TITLES[one.category]

    @property
    def moved(self) -> str:
        """From which category to which."""
        if self.before is None or self.after is None or self.before.category == self.after.category:
            return ""
        return f"from {self.before.category} to {self.after.category}"


@dataclass(frozen=True)
class ItemChangeRow:
    """One line of an item's history. ``now``: it is what the item says today."""

    change: PlaybookChange
    pieces: Sequence[Piece]
    now: bool = False


# -- items -------------------------------------------------------------------------------------------------------------


def items_of(playbook: Playbook) -> list[ItemRow]:
    """The items of now, in the order in which they are read."""
    effects = effects_of(playbook)
    return [_item(one, effects.get(one.section.id)) for one in blame(playbook)]


def groups_of(items: Iterable[ItemRow]) -> list[Group]:
    every = list(items)
    named = [(key, [row for row in every if row.section.category == key]) for key in CATEGORIES]
    return [Group(key, TITLES[key], MEANINGS[key], mine) for key, mine in named if mine]


def interval(good: int, n: int) -> tuple[float | None, float | None]:
    """The 95 % interval of a share (Wilson); nothing without outcomes."""
    return wilson_interval(good, n) if n else (None, None)


def _item(blame: Blame, effect: ItemEffect | None) -> ItemRow:
    good, n = blame.section.helpful, blame.section.helpful + blame.section.harmful
    low, high = interval(good, n)
    measured = effect if effect is not None and effect.left_out.n else None
    plain = ItemRow(blame.section, blame, low, high, None, measured)
    if low is None or high is None:
        return plain
    return replace(plain, picture=svg.whisker(good / n - 0.5, low - 0.5, high - 0.5, 0.5, label=plain.words))


# -- verdicts ----------------------------------------------------------------------------------------------------------


def tokens_of(playbook: Playbook) -> int:
    """Tokens of the context in each call, about."""
    return middle(playbook.context)


def verdict(playbook: Playbook, items: Sequence[ItemRow]) -> LessonVerdict:
    """A sentence of a playbook's version, size and outcomes, up to its last evolution."""
    n = len(items)
    size = f"{n} item{'' if n == 1 else 's'}, about {count(tokens_of(playbook))} tokens per call"
    return LessonVerdict(f"Version {playbook.version}, {size}; {_outcomes(items)}", _tone(items))


def _outcomes(items: Sequence[ItemRow]) -> str:
    tried = [item for item in items if item.outcomes]
    if not items:
        return "empty"
    if not tried:
        return "no outcome is known yet"
    measured = [item.effect for item in items if item.effect is not None and item.effect.known]
    if measured:
        help, harm = sum(effect.helps for effect in measured), sum(effect.harms for effect in measured)
        undecided = len(items) - help - harm
        return f"{help} measured to help, {harm} to do harm, {undecided} not decided yet"
    helped = sum(row.section.helpful > row.section.harmful for row in tried)
    hurt = sum(_hurts(item) for item in items)
    failed = f", {hurt} surely failed more often" if hurt else ""
    untried = f", {len(items) - len(tried)} not tried yet" if len(tried) < len(items) else ""
    return f"{helped} helped more often than not{failed}{untried}"


def _tone(items: Sequence[ItemRow]) -> str:
    if any(map(_hurts, items)):
        return "warn"
    return "good" if any(map(_does_good, items)) else ""


def _does_good(row: ItemRow) -> bool:
    if row.effect is not None and row.effect.known:
        return row.effect.helps
    return row.low is not None and row.low > 0.5


def _hurts(row: ItemRow) -> bool:
    """By its effect where that is known; else by the share of executions with it that failed."""
    if row.effect is not None and row.effect.known:
        return row.effect.harms
    return row.high is not None and row.high < 0.5


def taken(evolution: Evolution) -> str:
    """An evolution's outcome: "applied 3 of 4 changes, and 1 waits for a person"."""
    total = sum(evolution.outcome.values())
    if not total:
        return "suggested nothing new"
    settled = sum(evolution.outcome.get(state, 0) for state in TAKEN)
    text = f"applied {settled} of {total} change{'' if total == 1 else 's'}"
    waiting = sum(evolution.outcome.get(state, 0) for state in WAITING)
    return f"{text}, and {waiting} {'waits' if waiting == 1 else 'wait'} for a person" if waiting else text


def last_evolution(playbook: Playbook) -> Evolution | None:
    """The last one that ended with an answer."""
    rows = Evolution.objects.filter(playbook=playbook, settled_at__isnull=False)
    return rows.order_by("-settled_at").first()


def playbook_summary(actor: Actor, agent_id: Any) -> dict[str, Any]:
    """Summary of an agent's playbook for the agent's page; ``playbook`` is None where it has none."""
    playbook = playbooks_visible(actor).filter(agent_id=agent_id).first()
    if playbook is None:
        return {"playbook": None}
    last = last_evolution(playbook)
    return {
        "playbook": playbook,
        "verdict": verdict(playbook, items_of(playbook)),
        "last": last,
        "taken": taken(last) if last else "",
    }


# -- what changed ------------------------------------------------------------------------------------------------------


def differing(found: Iterable[ItemDifference]) -> list[Differing]:
    return [Differing(one.section, one.kind, one.before, one.after, _pieces(one.before, one.after)) for one in found]


def differing_by(changes: Iterable[Change]) -> list[Differing]:
    """The same of changes that were not made yet; an item that is only said again is no change of its text."""
    return [
        Differing(change.section, _kind(change), change.before, change.after, _pieces(change.before, change.after))
        for change in changes
    ]


def item_history(changes: Sequence[PlaybookChange]) -> list[ItemChangeRow]:
    """An item's history, the last change first, each text as the difference from the one before."""
    worded = [change for change in changes if change.action != "merged"]
    last = worded[-1] if worded else None
    return [ItemChangeRow(change, _stored_pieces(change), change is last) for change in reversed(changes)]


def _kind(change: Change) -> str:
    if change.action == "merged":
        return "merged"
    return "added" if change.before is None else "removed" if change.after is None else "changed"


def _pieces(before: PlaybookItem | None, after: PlaybookItem | None) -> list[Piece]:
    return difference(before.content if before else "", after.content if after else "")


def _stored_pieces(change: PlaybookChange) -> list[Piece]:
    """The text word by word; an item that came is shown plain and not as one large insertion."""
    old, new = (change.before or {}).get("content", ""), (change.after or {}).get("content", "")
    return [Piece("same", new)] if not old else difference(old, new)


class EvolutionsOut(serializers.Serializer[Any]):
    """Figures of a playbook's evolutions, over its whole life."""

    last_evolution_at = serializers.DateTimeField(allow_null=True)
    evolution_count = serializers.IntegerField()
    success_count = serializers.IntegerField()
    failure_count = serializers.IntegerField()
    total_deltas_generated = serializers.IntegerField()
    total_deltas_applied = serializers.IntegerField()
    average_confidence = serializers.FloatField()
    last_error = serializers.CharField(allow_null=True)


class PlaybookOut(Shape):
    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent.slug", help_text="The agent's slug.")
    version = serializers.IntegerField(help_text="Rises by one with each change.")
    section_count = serializers.IntegerField()
    tokens = serializers.IntegerField(read_only=True, help_text="What telling it costs in each call, about.")
    evolves = serializers.BooleanField(
        source="agent.evolves", help_text="Whether it evolves by itself: a setting of its agent."
    )
    executions = serializers.IntegerField(source="traces")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    computed = {"tokens": tokens_of}
