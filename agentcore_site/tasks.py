"""Celery tasks of the whole site."""

from __future__ import annotations

import logging

from celery import shared_task

from agentcore_site.digests import digests_queue
from agentcore_site.lib.retention import rules
from agentcore_site.storage import sizes_note

log = logging.getLogger(__name__)


@shared_task(name="retention")
def retention() -> dict[str, int]:
    """Every rule of the list, one after the other; one that fails keeps no other from its turn. Returns how many rows
    (of archives: jobs) of each."""
    sizes_note()
    done: dict[str, int] = {}
    for name, rule in sorted(rules.items()):
        if rule.age is not None:
            try:
                done[name] = rule.age()
            except Exception:
                log.exception("retention of %s", name)
    return done


@shared_task(name="notices.digests")
def digests() -> int:
    """Queues the weekly digests that are due. Returns how many."""
    return digests_queue()
