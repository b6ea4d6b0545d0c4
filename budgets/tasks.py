"""The sweep: holds whose lease ran out are charged, alerts are delivered, jobs with room again go on. And each hour,
days of the ledger that are over are summed."""

from __future__ import annotations

from typing import Final

from celery import shared_task

from budgets.alerts.delivery import alert_deliver, alerts_due
from budgets.alerts.job_stops import jobs_resume
from budgets.ledger import charge_expired
from budgets.ledger.days import days_sum

BATCH: Final = 1_000
ALERTS: Final = 50  # at a time: each may wait for a slow server


@shared_task(name="budgets.sweep")
def sweep() -> tuple[int, int]:
    """Returns how many holds were charged and how many alerts were delivered. Jobs that have room again go on."""
    jobs_resume()
    charged = 0
    while (batch := charge_expired(limit=BATCH)) == BATCH:
        charged += batch
    return charged + batch, sum(alert_deliver(alert) for alert in alerts_due()[:ALERTS])


@shared_task(name="budgets.days")
def days() -> int:
    """Returns how many days were summed."""
    return days_sum()
