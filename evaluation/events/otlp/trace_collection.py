"""Makes trajectories of complete traces."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.db.models.functions import Now

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import Unavailable
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import UnknownPrice, Usage, cost_micros
from evaluation.events.models import WaitingSpan
from evaluation.events.otlp.assembly import trajectory_of
from evaluation.events.otlp.conventions import AgentSpan, SpanKind
from evaluation.events.received import trajectories_receive
from experiences.models import Agent

log = logging.getLogger(__name__)

SETTLED: Final = 2.0  # seconds without another span, after which a trace with its root is complete
FORSAKEN: Final = 60.0  # seconds without another span, after which a trace without a root is complete
LONGEST: Final = 600.0  # seconds: a longer trace is cut there
BATCH: Final = 200  # traces of one transaction
ROUND: Final = 20.0  # seconds of one call at most

READY: Final = """
SELECT agent_id, trace_id FROM events_waitingspan GROUP BY agent_id, trace_id
HAVING max(received_at) < now() - make_interval(secs => CASE WHEN bool_or(root) THEN %s ELSE %s END)
    OR min(received_at) < now() - make_interval(secs => %s)
ORDER BY min(id) LIMIT %s
"""


def traces_collect() -> int:
    """Stores what is whole. Returns how many trajectories are new. Spans that come later than their trace was whole are
    left out."""
    stored, ends = 0, time.monotonic() + ROUND
    while ready := _ready():
        by_agent: dict[UUID, list[str]] = defaultdict(list)
        for agent, trace in ready:
            by_agent[agent].append(trace)
        for agent, traces in by_agent.items():
            stored += _stored(Agent.objects.get(pk=agent), traces)
        if len(ready) < BATCH or time.monotonic() > ends:
            break
    return stored


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
    rows = list(WaitingSpan.objects.filter(agent=agent, trace_id__in=traces).values_list("pk", "trace_id", "body"))
    spans: dict[str, list[AgentSpan]] = defaultdict(list)
    for _, trace, body in rows:
        spans[trace].append(AgentSpan.from_json(orjson.loads(body)))
    prices = partial(_cost_micros, DatabasePriceBook.load(agent.organization_id))
    found = {
        f"otlp-{trace}-{agent.pk.hex}": partial(trajectory_of, some, cost_of=prices)
        for trace, some in spans.items()
        if any(span.kind is not SpanKind.OTHER for span in some)
    }
    stored = trajectories_receive(agent, found) if agent.collects else 0
    WaitingSpan.objects.filter(pk__in=[pk for pk, _, _ in rows]).delete()
    return stored


def _cost_micros(book: DatabasePriceBook, model: str, usage: Usage) -> int | None:
    try:
        return cost_micros(book.price(model), usage)
    except UnknownPrice:
        return None
