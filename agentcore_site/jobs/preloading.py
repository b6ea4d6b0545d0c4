"""Loads the code of all kinds of jobs in a worker before it forks, so that its children share one copy."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_before_create_process

from agentcore_site.jobs.kinds import kinds_load
from agentcore_site.lib import gc_freeze


@worker_before_create_process.connect
def share_what_is_loaded(**_: Any) -> None:
    """Celery sends this signal in workers alone: beat and the web process load no kind of job."""
    kinds_load()
    gc_freeze.before_fork()
