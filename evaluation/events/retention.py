"""Deletes old published events."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from agentcore_site.lib.retention import kept, old_rows
from evaluation.events.models import EventKind, OutboxEvent
from evaluation.events.subjects import STREAMS

KEPT: Final = timedelta(days=1)
ERASABLE: Final = [kind for kind in EventKind.values if kind != EventKind.DEPLOYED]
LONGEST: Final = max(stream.max_age for stream in STREAMS)


def settled() -> QuerySet[OutboxEvent]:
    """Events that were settled long ago. If an erasure may have to find a message in the stream, the limit is the
    stream's own retention."""
    now = timezone.now()
    in_stream = Q(sequence__isnull=False, kind__in=ERASABLE, settled_at__gte=now - timedelta(seconds=LONGEST))
    return OutboxEvent.objects.filter(~in_stream, settled_at__lt=now - KEPT)


old_rows(
    "events that were published",
    f"Deleted after a day; what an erasure may have to find in the stream after {LONGEST / 86_400:g} days, as there.",
    settled,
    raw=True,
)
kept(
    "what was received",
    "Kept: an event that comes again is known by its id, and an erasure takes its words.",
    "events_receivedtrajectory",
    "events_receivedreward",
    "events_trainingrequest",
)
kept("dead letters", "Kept, until an erasure deletes those with its words.", "events_deadletter")
kept("notes of erased messages", "Deleted once the stream has no such message.", "events_erasedmessage")
kept("spans of traces that are not whole", "Deleted when their trace is stored, within minutes.", "events_waitingspan")
kept(
    "publishers of events",
    "Kept until they are switched off; credentials for ever.",
    "events_eventpublisher",
    "events_eventcredential",
)
