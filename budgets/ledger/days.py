"""Sums of the ledger by whole days, so that a report of a month reads its days and not its entries.

An entry bears the moment in which it was written, and is never changed: a day that is over has its sums for good. Only
a transaction may show an entry late, so that a day is summed an hour after its end. Reports add the entries of the
days that are not summed yet, and so are exact at any moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import DateField, F, Sum
from django.db.models.functions import TruncMonth

from agentcore_site.tenancy.models import Organization
from budgets.models import DayGroup, LedgerDay, LedgerEntry

LATE: Final = timedelta(hours=1)  # the longest delay until a transaction shows its entries
DAY: Final = timedelta(days=1)

# In one statement, so that a day has all of its sums or none.
SUM: Final = """
INSERT INTO budgets_ledgerday (organization_id, day, "group", key, purpose, cost, calls, input_tokens, output_tokens,
    cached_tokens, estimated)
SELECT e.organization_id, %(day)s, g.name, g.key, g.purpose, sum(e.spent_delta + e.debt_delta),
    count(*) FILTER (WHERE e.kind IN ('settle', 'charge')), sum(e.input_tokens), sum(e.output_tokens),
    sum(e.cached_tokens), count(*) FILTER (WHERE e.kind IN ('settle', 'charge') AND e.estimated)
FROM budgets_ledgerentry e CROSS JOIN LATERAL (VALUES
    ('model', e.model, ''), ('purpose', e.purpose, ''), ('day', '', ''), ('job', coalesce(e.job_id::text, ''), ''),
    ('agent', coalesce(e.agent_id::text, ''), e.purpose), ('budget', coalesce(e.organization_budget_id::text, ''), '')
) g(name, key, purpose)
WHERE e.organization_id = %(organization)s AND e.at >= %(begin)s AND e.at < %(end)s AND e.kind <> 'reserve'
GROUP BY e.organization_id, g.name, g.key, g.purpose
ON CONFLICT DO NOTHING
"""

# The first entry after the sums, and the last day with sums: one look at an index for each organisation. The end of the
# sums is computed beside their day: row security keeps a condition that converts values out of the index.
SUMMED: Final = """
WITH summed AS MATERIALIZED (
    SELECT organization.id, last.day, coalesce((last.day + 1)::timestamp AT TIME ZONE 'UTC', '-infinity') AS ended
    FROM unnest(%(organizations)s::uuid[]) organization(id)
    LEFT JOIN LATERAL (SELECT day FROM budgets_ledgerday WHERE organization_id = organization.id AND "group" = 'day'
        ORDER BY day DESC LIMIT 1) last ON true
)
SELECT min(entry.at), max(summed.day)
FROM summed LEFT JOIN LATERAL (SELECT at FROM budgets_ledgerentry
    WHERE organization_id = summed.id AND kind <> 'reserve' AND at >= summed.ended ORDER BY at LIMIT 1) entry ON true
"""


def midnight(day: date) -> datetime:
    """The moment (UTC) in which a day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days_sum(now: datetime | None = None) -> int:
    """Sums the days that are over and were not summed. Returns how many, of all organisations."""
    end = midnight(((now or datetime.now(UTC)) - LATE).astimezone(UTC).date())
    summed = 0
    for organization_id in _organizations():
        last = last_summed([organization_id])
        begin = midnight(last + DAY) if last else datetime(1970, 1, 1, tzinfo=UTC)
        while first := _first_entry(organization_id, begin, end):
            day = first.astimezone(UTC).date()
            begin = midnight(day + DAY)
            given: dict[str, Any] = {"organization": organization_id, "day": day, "begin": midnight(day), "end": begin}
            with connection.cursor() as cursor:
                cursor.execute(SUM, given)
            summed += 1
    return summed


def last_summed(organization_ids: Iterable[uuid.UUID]) -> date | None:
    """The last day before the first entry of these organisations that no sum holds. An organisation without such an
    entry does not count. Later days have no sums, or those of some of these organisations only. None: there are no
    sums."""
    with connection.cursor() as cursor:
        cursor.execute(SUMMED, {"organizations": list(set(organization_ids))})
        first, last = cursor.fetchone()
    return first.astimezone(UTC).date() - DAY if first and last else last


def _organizations() -> list[uuid.UUID]:
    return list(Organization.objects.order_by("pk").values_list("pk", flat=True))


def _first_entry(organization_id: uuid.UUID, begin: datetime, end: datetime) -> datetime | None:
    rows = LedgerEntry.objects.filter(organization_id=organization_id, at__gte=begin, at__lt=end).exclude(
        kind="reserve"
    )
    return rows.order_by("at").values_list("at", flat=True).first()


def agents_paid(
    agent_ids: Sequence[uuid.UUID], organization_ids: Iterable[uuid.UUID], since: date
) -> Iterator[tuple[uuid.UUID, date, str, int]]:
    """(agent, first day of a month, purpose, micro-dollars) of these agents from a day on, in parts to be added up.
    ``organization_ids``: to whom the agents belong."""
    summed = last_summed(organization_ids)
    later = midnight(since if summed is None else max(since, summed + DAY))
    entries = LedgerEntry.objects.filter(agent_id__in=agent_ids, at__gte=later).exclude(kind="reserve").order_by()
    months = entries.annotate(month=TruncMonth("at", tzinfo=UTC, output_field=DateField()))
    paid = Sum(F("spent_delta_micros") + F("debt_delta_micros"))
    of_entries = months.values_list("agent_id", "month", "purpose").annotate(paid=paid)
    for agent_id, month, purpose, paid_micros in of_entries:
        yield agent_id, month, purpose, int(paid_micros)
    if summed is not None:
        keys = [str(agent_id) for agent_id in agent_ids]
        days = LedgerDay.objects.filter(group=DayGroup.AGENT, key__in=keys, day__gte=since, day__lte=summed).order_by()
        of_days = days.annotate(month=TruncMonth("day")).values_list("key", "month", "purpose")
        for key, month, purpose, paid_micros in of_days.annotate(paid=Sum("cost_micros")):
            yield uuid.UUID(key), month, purpose, int(paid_micros)
