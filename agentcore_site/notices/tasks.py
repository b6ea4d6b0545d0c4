"""Celery tasks that deliver events."""

from __future__ import annotations

from typing import Final

from celery import shared_task

from agentcore_site.lib.exclusive_lock import exclusive_lock
from agentcore_site.notices.delivery import deliveries_make
from agentcore_site.notices.fan_out import events_fan_out

DELIVERING: Final = "notices.deliver"


@shared_task(name="notices.spread")
def spread() -> int:
    """Returns how many events were spread."""
    return events_fan_out()


@shared_task(name=DELIVERING)
def deliver() -> int:
    """One worker at a time: a receiver that is slow must not hold them all. Returns how many deliveries were taken."""
    with exclusive_lock(DELIVERING) as mine:
        return deliveries_make() if mine else 0
