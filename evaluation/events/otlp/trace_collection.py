"""Makes trajectories of complete traces."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import Unavailable
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import UnknownPrice, Usage, cost_micros
from evaluation.events.models import StoredSpan, WaitingSpan
from evaluation.events.otlp.agent_spans import SILENT, AgentSpan
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.received import in_turn, trajectories_receive
from experiences.agents.consent import consent_withdrawn
from experiences.models import Agent

log = logging.getLogger(__name__)

SETTLED: Final = 2.0  # seconds without another span, after which a trace with its root is complete
FORSAKEN: Final = 600.0  # seconds without another span, after which a trace without a root is stored as it is
LONGEST: Final = 3_600.0  # seconds: a trace that still grows is stored as far as it came
KEPT: Final = 3_600.0  # seconds after a trace was stored, in which late spans are added to its trajectory
BATCH: Final = 200  # traces of one transaction
ROUND: Final = 20.0  # seconds of one call at most

READY: Final = """
SELECT agent_id, trace_id FROM events_waitingspan w GROUP BY agent_id, trace_id
HAVING max(received_at) < now() - make_interval(secs => CASE WHEN bool_or(root) OR EXISTS (
    SELECT FROM events_storedspan s WHERE s.agent_id = w.agent_id AND s.trace_id = w.trace_id AND s.root
) THEN %s ELSE %s END) OR min(received_at) < now() - make_interval(secs => %s)
ORDER BY min(id) LIMIT %s
"""
MOVE: Final = """
WITH moved AS (
    DELETE FROM events_waitingspan WHERE id = ANY(%s) RETURNING organization_id, agent_id, trace_id, span_id, root, body
) INSERT INTO events_storedspan (organization_id, agent_id, trace_id, span_id, root, body)
SELECT organization_id, agent_id, trace_id, span_id, root, body FROM moved ON CONFLICT DO NOTHING
"""


def traces_collect() -> int:
    """Stores what is whole. Returns how many trajectories are new. Spans that come later than their trace was stored
    make its trajectory again, while the others are kept."""
    stored, ends = 0, time.monotonic() + ROUND
    spans_over()._raw_delete("default")
    while ready := _ready():
        by_agent: dict[UUID, list[str]] = defaultdict(list)
        for agent, trace in ready:
            by_agent[agent].append(trace)
        for agent, traces in by_agent.items():
            stored += _stored(Agent.objects.get(pk=agent), traces)
        if len(ready) < BATCH or time.monotonic() > ends:
            break
    return stored


def spans_over() -> QuerySet[StoredSpan]:
    """Stored spans that no late span of their trace can need."""
    return StoredSpan.objects.filter(stored_at__lt=Now() - timedelta(seconds=KEPT))


def _stored(agent: Agent, traces: Sequence[str]) -> int:
    """Stores traces. A trace that can't be stored is left out and logged; it must not hold up the others."""
    try:
        return _store(agent, traces)
    except TROUBLE:
        raise
    except Unavailable as error:  # a key is unavailable: these traces are tried again after others
        log.warning("traces of %s wait: %s", agent, error)
        WaitingSpan.objects.filter(agent=agent, trace_id__in=traces).update(received_at=Now())
        return 0
    except Exception:
        if len(traces) > 1:
            return sum(_stored(agent, [trace]) for trace in traces)
        log.exception("trace %s of %s could not be stored", traces[0], agent)
        WaitingSpan.objects.filter(agent=agent, trace_id__in=traces).delete()
        return 0


def _ready() -> list[tuple[UUID, str]]:
    with connection.cursor() as cursor:
        cursor.execute(READY, [SETTLED, FORSAKEN, LONGEST, BATCH])
        return list(cursor.fetchall())


@transaction.atomic
def _store(agent: Agent, traces: Sequence[str]) -> int:
    waiting = list(WaitingSpan.objects.filter(agent=agent, trace_id__in=traces).values_list("pk", flat=True))
    in_turn([agent.organization_id])  # before consent is held, as in all ways of receiving
    if consent_withdrawn([str(agent.pk)]):
        WaitingSpan.objects.filter(pk__in=waiting).delete()
        return 0
    kept = StoredSpan.objects.filter(agent=agent, trace_id__in=traces).order_by("pk")
    reopened = set(kept.values_list("trace_id", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(MOVE, [waiting])
    spans: dict[str, list[AgentSpan]] = defaultdict(list)
    for trace, body in kept.values_list("trace_id", "body"):
        spans[trace].append(AgentSpan.from_json(orjson.loads(body)))
    prices = partial(_cost_micros, DatabasePriceBook.load(agent.organization_id))
    names = {trace: f"otlp-{trace}-{agent.pk.hex}" for trace in spans}
    found = {
        names[trace]: partial(trajectory_of, some, cost_of=prices)
        for trace, some in spans.items()
        if any(span.kind not in SILENT for span in some)
    }
    again = {names[trace] for trace in reopened}
    new = trajectories_receive(agent, found, again)
    if late := len(found.keys() - again) - new:
        log.warning("spans of %d traces of %s came too late to be added to their trajectories", late, agent)
    return new


def _cost_micros(book: DatabasePriceBook, model: str, usage: Usage) -> int | None:
    try:
        return cost_micros(book.price(model), usage)
    except UnknownPrice:
        return None
