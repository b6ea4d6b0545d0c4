"""Deletes old published and received events."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from agentcore_site.jobs.models import ENDED
from agentcore_site.lib.retention import kept, old_rows
from evaluation.events.models import DeadLetter, EventKind, OutboxEvent, ReceivedReward, TrainingRequest
from evaluation.events.subjects import REWARD, STREAMS

KEPT: Final = timedelta(days=1)
REQUEST_DAYS: Final = 90
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


def rewards() -> QuerySet[ReceivedReward]:
    """Rewards as they came. Their trajectories keep what they were paid."""
    return ReceivedReward.objects.filter(received_at__lt=_before(REWARD))


def letters() -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(created_at__lt=_before(REWARD))


def requests() -> QuerySet[TrainingRequest]:
    """Requests whose job ended long ago."""
    limit = timezone.now() - timedelta(days=REQUEST_DAYS)
    return TrainingRequest.objects.filter(job__status__in=ENDED, job__finished_at__lt=limit)


def _before(subject: str) -> datetime:
    """As long as the subject's stream keeps its messages: one that comes again is known by its id until then."""
    return timezone.now() - timedelta(seconds=next(one.max_age for one in STREAMS if subject in one.plain))


old_rows("received rewards", "Deleted after 30 days, as in their stream.", rewards, raw=True)
old_rows("dead letters", "Deleted after 30 days, as in their stream; by an erasure at once.", letters, raw=True)
old_rows("requests to train", f"Deleted {REQUEST_DAYS} days after their job ended.", requests, raw=True)
kept(
    "received trajectories",
    "Kept: their ids, so that none is received twice. Their content ages as trajectories.",
    "events_receivedtrajectory",
)
kept("notes of erased messages", "Deleted once the stream has no such message.", "events_erasedmessage")
kept(
    "spans of traces",
    "Moved when their trace is stored, within minutes; deleted an hour later.",
    "events_waitingspan",
    "events_storedspan",
)
kept(
    "publishers of events",
    "Kept until they are switched off; credentials for ever.",
    "events_eventpublisher",
    "events_eventcredential",
)
