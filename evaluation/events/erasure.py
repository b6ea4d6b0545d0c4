"""Erasure in received events. Outgoing events are made of rows that are erased themselves; published messages are
deleted from their stream (``events.stream_erasure``)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from agentcore_site.tenancy.erasure import ErasureFinding, deleted, erasure_handlers, holding, personal_rows, rewritten
from evaluation.events.models import (
    DeadLetter,
    ErasedMessage,
    EventCredential,
    EventKind,
    OutboxEvent,
    ReceivedReward,
    ReceivedTrajectory,
    TrainingRequest,
    WaitingSpan,
)
from evaluation.events.subjects import REQUEST, REWARD, stream_of

TRAININGS: Final = stream_of(REQUEST)  # and of the reports about them
REWARDS: Final = stream_of(REWARD)

personal_rows("publishers of events", EventCredential, rewritten, texts=("name",))
# The ids that senders gave to trajectories; the content is erased with trajectories.
personal_rows("received trajectories", ReceivedTrajectory, rewritten, names=("trajectory_id",))
personal_rows("spans of traces that are not whole", WaitingSpan, deleted, texts=("body",))


@erasure_handlers.register("dead letters of events")
def dead_letters(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = DeadLetter.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("payload", "detail", "subject"))
    rows = list(found)

    def erase() -> None:
        ErasedMessage.objects.bulk_create(
            ErasedMessage(
                organization_id=organization_id,
                stream=row.stream,
                sequence=row.sequence,
                mark=row.stored_at.isoformat(),
            )
            for row in rows
        )
        DeadLetter.objects.filter(pk__in=[row.pk for row in rows]).delete()

    return ErasureFinding(len(rows), erase)


@erasure_handlers.register("received rewards")
def received_rewards(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Their words, and the messages that they came and went on with."""
    mine = ReceivedReward.objects.filter(organization_id=organization_id)
    names, values = ("reward_id", "trajectory_id"), ("components", "about")
    rows = list(holding(mine, words, texts=names, values=values))
    found = rewritten(mine, words, names=names, values=values)

    def erase() -> None:
        sent = OutboxEvent.objects.filter(
            organization_id=organization_id,
            kind=EventKind.REWARD,
            key__in=[row.record_id for row in rows if row.record_id is not None],
            data__received__in=[str(row.pk) for row in rows],
            withheld="",
        )
        marks = [(row.sequence, row.digest) for row in rows if row.sequence is not None]
        marks += [(one.sequence, str(one.message_id)) for one in sent]
        ErasedMessage.objects.bulk_create(
            ErasedMessage(organization_id=organization_id, stream=REWARDS, sequence=sequence, mark=mark)
            for sequence, mark in marks
        )
        found.erase()

    return ErasureFinding(len(rows), erase)


@erasure_handlers.register("training requests")
def training_requests(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = TrainingRequest.objects.filter(organization_id=organization_id)
    names, values = ("training_job_id", "base_model"), ("request", "report")
    rows = list(holding(mine, words, texts=names, values=values))
    found = rewritten(mine, words, names=names, values=values)

    def erase() -> None:
        sent = OutboxEvent.objects.filter(
            organization_id=organization_id,
            kind__in=(EventKind.REQUEST, EventKind.STATUS),
            key__in=[key for row in rows for key in (row.pk, row.job_id)],
            withheld="",
        )
        marks = [(row.sequence, row.digest) for row in rows if row.sequence is not None]
        marks += [(one.sequence, str(one.message_id)) for one in sent]
        ErasedMessage.objects.bulk_create(
            ErasedMessage(organization_id=organization_id, stream=TRAININGS, sequence=sequence, mark=mark)
            for sequence, mark in marks
        )
        found.erase()

    return ErasureFinding(len(rows), erase)
