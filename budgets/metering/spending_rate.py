"""A job's spending per minute by the ledger, for the brake."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import connection

from agentcore_site.lib.money import micros
from budgets.metering.rate_limiter import SpendingRateLimiter, Spent

# A job calls one endpoint, its agent's. Minutes are counted back from now; debts are in the cost of their call.
RATES: Final = """
SELECT coalesce(sum(cost) FILTER (WHERE past = 0), 0), coalesce(max(needed), 0) FROM (
    SELECT past, sum(cost) AS cost, sum(cost) FILTER (WHERE error = '') AS needed FROM (
        SELECT floor(extract(epoch FROM clock_timestamp() - at) / 60) AS past, cost, error FROM budgets_ledgerentry
        WHERE organization_id = %s AND job_id = %s AND at > clock_timestamp() - interval '10 minutes'
            AND kind IN ('settle', 'charge')
    ) AS bills GROUP BY past
) AS minutes
"""


def job_spent_lately(organization_id: UUID, job_id: UUID) -> Spent:
    with connection.cursor() as cursor:
        cursor.execute(RATES, [organization_id, job_id])
        minute_micros, needed_micros = cursor.fetchone()
    return Spent(int(minute_micros), int(needed_micros))


def site_rate_limiter() -> SpendingRateLimiter:
    return SpendingRateLimiter(settings.SPENDING_BRAKE_FACTOR, micros(settings.SPENDING_BRAKE_FLOOR_USD))
