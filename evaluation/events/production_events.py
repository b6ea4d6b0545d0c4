"""Payloads of answers in production and their rewards, from rows of the outbox.

An answer whose agent may not be recorded has no content, and is not noted; what may not be recorded any more when it
is sent, or was erased before, is withheld.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence

from agentcore_site.ids import derived
from agentcore_site.lib.key_errors import KeyUnavailable, Unopenable
from evaluation.events.leased import GONE, KEY_AWAY, NOT_RECORDED, LeasedEvent, Made, Payload
from evaluation.events.models import EventPublisher
from evaluation.events.payloads.reward import StoredReward, reward_payload
from evaluation.events.payloads.reward_parts import composite_account
from evaluation.events.payloads.trace import COMPLETIONS, StoredTrace, trace_payload
from evaluation.serving.models import ProductionTrace, Release, TraceStatus


def trace_payloads(rows: Sequence[LeasedEvent]) -> Made:
    releases: dict[uuid.UUID, int] = {}
    for row, trace in _found(rows):
        if isinstance(trace, str):
            yield row, trace
            continue
        yield row, _trace(trace, releases)


def _trace(trace: ProductionTrace, releases: dict[uuid.UUID, int]) -> Payload:
    assert trace.agent is not None
    request, response = trace.request, trace.response
    release = trace.release_id
    if release is not None and release not in releases:
        releases |= dict(Release.objects.filter(pk=release).values_list("pk", "number"))
    return trace_payload(
        StoredTrace(
            id=str(trace.pk),
            session=trace.session,
            agent=trace.agent.slug,
            request=request,
            response=response if isinstance(response, dict) else {},
            about=trace.metadata if isinstance(trace.metadata, dict) else {},
            began=trace.created_at.timestamp(),
            duration_ms=trace.duration_ms,
            succeeded=trace.status == TraceStatus.OK,
            error=trace.error,
            model=trace.model,
            version=f"{trace.agent.slug}-{releases[release]}" if release in releases else None,
            temperature=trace.temperature,
            tokens=trace.input_tokens + trace.output_tokens,
            cost_micros=trace.cost_micros,
        )
    )


def trace_reward_payloads(rows: Sequence[LeasedEvent]) -> Made:
    for row, trace in _found(rows):
        if isinstance(trace, str):
            yield row, trace
        elif trace.reward is not None and "raw" in trace.components:
            how = trace.components
            completion = float(how["raw"]["completion"])
            ended = COMPLETIONS.get(completion, f"the users' success is {completion:g}")
            account = composite_account(how, how, completion=ended)
            yield (
                row,
                reward_payload(
                    StoredReward(
                        # Feedback may be changed and changed back: each change is a reward of its own.
                        id=str(derived(trace.pk, "reward", row.message_id)),
                        trajectory=str(trace.pk),
                        session=trace.session or str(trace.pk),
                        at=row.created_at,
                        total=trace.reward,
                        parts=account.parts,
                        dense=True,
                        confidence=account.confidence,
                        trailing=account.trailing,
                    )
                ),
            )


def _found(rows: Sequence[LeasedEvent]) -> Iterator[tuple[LeasedEvent, ProductionTrace | str]]:
    """Each row with its trace, or with the reason why nothing is sent."""
    publishing = _publishing(row.organization_id for row in rows)
    traces = ProductionTrace.objects.filter(pk__in={row.key for row in rows}).select_related("agent")
    by_id = {trace.pk: trace for trace in traces}
    for row in rows:
        trace = by_id.get(row.key)
        if trace is None or trace.agent is None:
            yield row, GONE
        elif not trace.agent.collects or row.organization_id not in publishing:
            yield row, NOT_RECORDED
        else:
            yield row, _hindrance(trace) or trace


def _hindrance(trace: ProductionTrace) -> str:
    """The reason why its content is not published; "" where there is none."""
    try:
        return "" if trace.request and trace.response is not None else NOT_RECORDED  # {} where it may be encrypted too
    except (KeyUnavailable, Unopenable) as error:
        return KEY_AWAY if isinstance(error, KeyUnavailable) else error.title


def _publishing(organizations: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Organisations that publish answers in production now."""
    rows = EventPublisher.objects.filter(organization__in=set(organizations), production=True)
    return set(rows.values_list("organization_id", flat=True))
