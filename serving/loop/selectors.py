"""Production traces with what was thought of them, to learn from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from django.db.models import QuerySet

from experiences.models import Agent
from serving.feedback.opinions import CORRECTION, STARS, SUCCESS, THUMBS
from serving.loop.rows import JudgedTrace
from serving.models import ArmName, Feedback, ProductionTrace, TraceStatus

JUDGES = (THUMBS, STARS, SUCCESS, CORRECTION)
BATCH = 2_000


def judged_traces(agent: Agent, *, after: UUID | None = None) -> Iterator[JudgedTrace]:
    """Answers of the agent that have feedback, oldest first; ``after``: those behind that trace."""
    rows = ProductionTrace.objects.filter(agent=agent, status=TraceStatus.OK).exclude(arm=ArmName.SHADOW)
    rows = rows.filter(pk__in=_judged(agent)).order_by("pk")
    if after is not None:
        rows = rows.filter(pk__gt=after)
    while batch := list(rows[:BATCH]):
        yield from _with_opinions(batch)
        rows = rows.filter(pk__gt=batch[-1].pk)


def _judged(agent: Agent) -> QuerySet[Feedback, UUID]:
    given = Feedback.objects.filter(trace__agent=agent, metric__in=JUDGES)
    return given.values_list("trace_id", flat=True)


def _with_opinions(traces: list[ProductionTrace]) -> Iterator[JudgedTrace]:
    given: dict[UUID, list[Feedback]] = defaultdict(list)
    for one in Feedback.objects.filter(trace__in=traces, metric__in=JUDGES).order_by("updated_at"):
        given[one.trace_id].append(one)
    for trace in traces:
        opinions = given[trace.pk]
        corrections = [one for one in opinions if one.metric == CORRECTION]
        liked = [one for one in opinions if _likes(one) is True]
        yield JudgedTrace(
            id=trace.pk,
            query=trace.asked,
            answer=trace.answer,
            liked=len(liked),
            disliked=sum(_likes(one) is False for one in opinions),
            correction=corrections[-1].text if corrections else "",
            giver=(corrections or liked or opinions)[-1].giver,
        )


def _likes(one: Feedback) -> bool | None:
    """None: it says neither."""
    if one.value is None or one.metric == CORRECTION:
        return None
    if one.metric == STARS:
        return True if one.value >= 4 else False if one.value <= 2 else None
    return one.value >= 0.5
