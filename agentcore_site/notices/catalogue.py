"""The types of events that people and systems can subscribe to, for webhooks, the bell and mails. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class EventType:
    """``title``: for people. ``bell``: whether the bell shows it unless a person chooses otherwise. ``shown``: whether
    it can be chosen; the others go to their receivers without a choice. ``personal``: it concerns its owner alone, also
    where others follow everything, and goes to an organisation's webhook only where that names the type."""

    name: str
    title: str
    bell: bool = False
    shown: bool = True
    personal: bool = False


TEST: Final = "webhook.test"
MENTIONED: Final = "comment.mentioned"
SWITCHED_OFF: Final = "webhook.switched_off"

EVENT_TYPES: Final[dict[str, EventType]] = {
    one.name: one
    for one in (
        EventType("job.started", "A job started"),
        EventType("job.completed", "A job completed", bell=True),
        EventType("job.failed", "A job failed", bell=True),
        EventType("job.paused", "A job paused, by a person or because it can't continue", bell=True),
        EventType("job.cancelled", "A job was cancelled"),
        EventType("budget.threshold", "A budget is nearly used up"),
        EventType("budget.exceeded", "A budget is used up"),
        EventType("deployment.started", "A release is being deployed"),
        EventType("deployment.promoted", "A release is in production"),
        EventType("deployment.rolled_back", "A release was rolled back", bell=True),
        EventType("evaluation.completed", "An evaluation completed"),
        EventType("evolution.alert", "Evolution of a playbook needs attention: failures, confidence, cost, queue"),
        EventType("evolution.paused", "Evolution was paused, because executions got slower", bell=True),
        EventType("review.requested", "Changes wait for a review"),
        EventType("review.decided", "A change was reviewed"),
        EventType(MENTIONED, "A person mentions you in a comment", bell=True, personal=True),
        EventType(SWITCHED_OFF, "A webhook was switched off", bell=True, shown=False),
        EventType(TEST, "A test of a webhook", shown=False),
    )
}
CHOICES: Final = [(kind.name, kind.title) for kind in EVENT_TYPES.values() if kind.shown]
CHOSEN: Final = frozenset(name for name, _ in CHOICES)
BELL: Final = tuple(kind.name for kind in EVENT_TYPES.values() if kind.bell and kind.shown)
