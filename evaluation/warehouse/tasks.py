"""Celery tasks of the warehouse."""

from __future__ import annotations

import logging
import time
from typing import Final

from celery import shared_task
from django.core.cache import cache

from agentcore_site.lib.due_work import task_with_work
from agentcore_site.lib.exclusive_lock import exclusive_lock
from evaluation.warehouse.clickhouse.transports import WarehouseError
from evaluation.warehouse.loading import fill, store_configured
from evaluation.warehouse.rollups import roll_up

log = logging.getLogger(__name__)

ROLLING: Final = "warehouse.rolling"
REST: Final = "warehouse.rest"
SHARE: Final = 10  # counting takes a tenth of the time at most: a busy hour is counted less often


@shared_task(name="warehouse.roll_up")
def roll_up_task() -> int:
    """Roll-ups of what changed. Returns how many hours were counted."""
    with exclusive_lock(ROLLING) as mine:
        if not mine or cache.get(REST):
            return 0
        began = time.monotonic()
        hours = roll_up()
        if (took := time.monotonic() - began) > 1:
            cache.set(REST, "1", timeout=round(SHARE * took))
        return hours


@task_with_work("warehouse.fill", lambda: store_configured() is not None)
def fill_task() -> int:
    """Sends changes to the warehouse, if one is set up. Returns the number of rows."""
    store = store_configured()
    try:
        return fill(store) if store is not None else 0
    except WarehouseError as error:
        log.warning("the warehouse is not filled: %s", error)
        return 0
