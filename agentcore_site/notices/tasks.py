"""Celery tasks that deliver events."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.due_work import task_with_work
from agentcore_site.lib.exclusive_lock import exclusive_lock
from agentcore_site.notices.delivery import deliveries_due, deliveries_make
from agentcore_site.notices.fan_out import events_fan_out, events_to_spread

DELIVERING: Final = "notices.deliver"


@task_with_work("notices.spread", lambda: events_to_spread().exists())
def spread() -> int:
    """Returns how many events were spread."""
    return events_fan_out()


@task_with_work(DELIVERING, lambda: deliveries_due().exists())
def deliver() -> int:
    """One worker at a time: a receiver that is slow must not hold them all. Returns how many deliveries were taken."""
    with exclusive_lock(DELIVERING) as mine:
        return deliveries_make() if mine else 0
