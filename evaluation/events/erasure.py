"""Erasure in received events. Outgoing events are made of rows that are erased themselves; published messages are
deleted from their stream (``events.stream_erasure``)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from django.db.models import QuerySet

from agentcore_site.tenancy.erasure import ErasureFinding, deleted, erasure_handlers, holding, personal_rows, rewritten
from evaluation.events.models import (
    DeadLetter,
    ErasedMessage,
    EventCredential,
    EventKind,
    OutboxEvent,
    ReceivedReward,
    ReceivedTrajectory,
    StoredSpan,
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
personal_rows("spans of traces that are stored", StoredSpan, deleted, texts=("body",))


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
    sent = OutboxEvent.objects.filter(
        kind=EventKind.REWARD,
        key__in=[row.record_id for row in rows if row.record_id is not None],
        data__received__in=[str(row.pk) for row in rows],
    )
    found = rewritten(mine, words, names=names, values=values)
    return _with_messages(found, REWARDS, rows, sent, organization_id)


@erasure_handlers.register("training requests")
def training_requests(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = TrainingRequest.objects.filter(organization_id=organization_id)
    names, values = ("training_job_id", "base_model"), ("request", "report")
    rows = list(holding(mine, words, texts=names, values=values))
    sent = OutboxEvent.objects.filter(
        kind__in=(EventKind.REQUEST, EventKind.STATUS),
        key__in=[key for row in rows for key in (row.pk, row.job_id)],
    )
    found = rewritten(mine, words, names=names, values=values)
    return _with_messages(found, TRAININGS, rows, sent, organization_id)


def _with_messages(
    found: ErasureFinding,
    stream: str,
    rows: Sequence[ReceivedReward] | Sequence[TrainingRequest],
    sent: QuerySet[OutboxEvent],
    organization_id: uuid.UUID,
) -> ErasureFinding:
    """``found`` together with the messages in a stream: those that the rows came with, and those ``sent`` of them."""

    def erase() -> None:
        marks: list[tuple[int | None, str]] = [(row.sequence, row.digest) for row in rows if row.sequence is not None]
        own = sent.filter(organization_id=organization_id, withheld="")
        marks += [(one.sequence, str(one.message_id)) for one in own]
        ErasedMessage.objects.bulk_create(
            ErasedMessage(organization_id=organization_id, stream=stream, sequence=sequence, mark=mark)
            for sequence, mark in marks
        )
        found.erase()

    return ErasureFinding(len(rows), erase)
