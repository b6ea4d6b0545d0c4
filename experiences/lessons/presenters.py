"""Presenters of lessons: verdicts as sentences, effects with their interval, history as differences."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from agentcore_site.console import svg
from agentcore_site.console.svg import Picture
from agentcore_site.templatetags.figures import count, points
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.selectors import LibrarySummary, Z, experiences_visible, library_summary
from experiences.lessons.stamps import stamp_faults, stamps
from experiences.models import Experience, ExperienceChange, ExperienceStatus, PromptPack

ICONS: Final = {
    ExperienceStatus.PROPOSED: "moving",
    ExperienceStatus.ACTIVE: "check",
    ExperienceStatus.PRUNED: "stopped",
    ExperienceStatus.QUARANTINED: "alert",
}
TONES: Final = {
    ExperienceStatus.PROPOSED: "running",
    ExperienceStatus.ACTIVE: "good",
    ExperienceStatus.PRUNED: "",
    ExperienceStatus.QUARANTINED: "paused",
}
MEANINGS: Final = {
    ExperienceStatus.PROPOSED: "Being tried: some rollouts see it, so that its effect can be measured.",
    ExperienceStatus.ACTIVE: "Measured, and kept.",
    ExperienceStatus.PRUNED: "Pruned by evidence or by a person. You can restore it.",
    ExperienceStatus.QUARANTINED: "From untrusted text. No agent receives it until a person approves it.",
}
OF_TEXT: Final = frozenset({"added", "updated", "merged", "edited"})
SHOWN: Final = 5
_PIECES = re.compile(r"\s+|[^\s]+")


class LessonVerdict(NamedTuple):
    text: str
    tone: str = ""


class Piece(NamedTuple):
    """A part of a text: "same", "gone" or "new"."""

    kind: str
    text: str


@dataclass(frozen=True)
class LessonRow:
    """One lesson with all fields of a list. ``fault`` is the reason why it is in no context; ``pack`` is the prompt
    pack for which it holds (None: the agent's system prompt, or none). ``cost_micros`` is the cost of the questions
    that found it, if known."""

    row: Experience
    fault: str
    low: float | None
    high: float | None
    picture: Picture | None
    icon: str
    tone: str
    cost_micros: int | None = None
    pack: PromptPack | None = None

    @property
    def effect_tone(self) -> str:
        if self.low is not None and self.low > 0:
            return "good"
        return "bad" if self.high is not None and self.high < 0 else ""


@dataclass(frozen=True)
class LessonChangeRow:
    """One line of a lesson's history."""

    change: ExperienceChange
    pieces: Sequence[Piece]


def lessons(rows: Sequence[Experience], costs: Mapping[UUID, int] | None = None) -> list[LessonRow]:
    """The rows as a list shows them; all effects on one scale. ``costs`` are those of finding them, by id."""
    stamped, spans = stamps(rows), [interval(row) for row in rows]
    edges = [
        abs(edge) for row, span in zip(rows, spans, strict=True) for edge in (row.effect, *span) if edge is not None
    ]
    scale = max(edges, default=0.0)
    return [
        LessonRow(
            row,
            stamped[row.pk].fault,
            *span,
            None if row.effect is None else svg.whisker(row.effect, *span, scale, label=effect_words(row).text),
            ICONS[ExperienceStatus(row.status)],
            TONES[ExperienceStatus(row.status)],
            (costs or {}).get(row.pk),
            stamped[row.pk].pack,
        )
        for row, span in zip(rows, spans, strict=True)
    ]


def interval(row: Experience) -> tuple[float | None, float | None]:
    """The 95 % interval of a lesson's effect; None while it is unknown."""
    if row.effect is None or row.effect_error is None:
        return None, None
    return row.effect - Z * row.effect_error, row.effect + Z * row.effect_error


def effect_words(row: Experience) -> LessonVerdict:
    """The effect of a lesson, as a sentence."""
    if row.effect is None:
        return LessonVerdict("Effect not measured yet.", "quiet")
    low, high = interval(row)
    size = f"{points(abs(row.effect)).lstrip('+')} points of reward"
    effect = f"{'adds' if row.effect >= 0 else 'takes'} {size}"
    if low is None or high is None:
        return LessonVerdict(f"It {effect}, from {_rollouts(row)}; how sure that is can't be known yet.")
    sure = f"95 % interval {points(low)} to {points(high)}, from {_rollouts(row)}"
    if low > 0:
        return LessonVerdict(f"It {effect}, {sure}.", "good")
    if high < 0:
        return LessonVerdict(f"It {effect}, {sure}.", "bad")
    return LessonVerdict(f"It {effect}, {sure}: that could be chance.")


def verdict(summary: LibrarySummary, left_out: int = 0) -> LessonVerdict:
    """The status of a set of lessons, as a sentence."""
    parts = [_active(summary)]
    if summary.proposed:
        parts.append(f"{_are(summary.proposed)} being tried")
    if summary.quarantined:
        parts.append(f"{count(summary.quarantined)} {'waits' if summary.quarantined == 1 else 'wait'} for a person")
    if left_out:
        parts.append(f"{_are(left_out)} left out, since the stamp does not fit")
    tone = "warn" if summary.hurting else "good" if summary.helping else ""
    return LessonVerdict("; ".join(parts) + ".", tone)


def overview_of(actor: Actor, agent_id: Any) -> dict[str, Any]:
    """Lessons on an agent's page: the verdict, and the lessons with the largest effect."""
    rows = experiences_visible(actor).filter(agent_id=agent_id)
    summary = library_summary(rows)
    active = list(rows.filter(status=ExperienceStatus.ACTIVE))
    best = sorted(active, key=lambda row: -(row.effect if row.effect is not None else -1e9))[:SHOWN]
    left_out = len(stamp_faults(active))
    return {"summary": summary, "verdict": verdict(summary, left_out), "lessons": lessons(best)}


def history(changes: Iterable[ExperienceChange]) -> list[LessonChangeRow]:
    """Lines with what changed of the text word by word, or from which status to which."""
    return [
        LessonChangeRow(change, difference(change.before, change.after) if change.action in OF_TEXT else ())
        for change in changes
    ]


def difference(before: str, after: str) -> list[Piece]:
    """Word-by-word difference of two texts."""
    old, new = _PIECES.findall(before), _PIECES.findall(after)
    found = []
    for kind, a, b, c, d in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if kind == "equal":
            found.append(Piece("same", "".join(old[a:b])))
            continue
        if a < b:
            found.append(Piece("gone", "".join(old[a:b])))
        if c < d:
            found.append(Piece("new", "".join(new[c:d])))
    return found


def _active(summary: LibrarySummary) -> str:
    if not summary.active:
        return "No lesson is active" if summary.total else "Nothing was learned yet"
    head = f"{count(summary.active)} active lesson{'' if summary.active == 1 else 's'}"
    shown = f"{count(summary.helping)} shown to help, {count(summary.hurting)} to hurt"
    cost = f"{'it costs' if summary.active == 1 else 'they cost'} about {count(summary.tokens)} tokens per call"
    return f"{head}; {shown}; {cost}"


def _are(number: int) -> str:
    return f"{count(number)} {'is' if number == 1 else 'are'}"


def _rollouts(row: Experience) -> str:
    return f"{count(row.rollouts)} rollout{'' if row.rollouts == 1 else 's'}"
