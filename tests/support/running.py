"""Running jobs inside the test's own process: the same engine, without a broker between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from django.db import connection
from django.test import override_settings

from agentcore_site.jobs import lease, lifecycle
from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.jobs.tasks import run_slice
from experiences.trajectories import rollout_writer

SMALL = {
    "n_iterations": 12,
    "eval_samples": 1,
    "eval_interval": 5,
    "checkpoint_interval": 4,
    "early_stopping": {"enabled": False},
    "seed": 7,
}
SMALL_POOL = {"pool": {"train": 40, "selection": 10, "held_out": 20}}


def run_to_end(job: Job, *, slices: int = 1000) -> Job:
    """Slices of a job, one after the other, until it ends or pauses."""
    with _without_keeper() if connection.in_atomic_block else nullcontext():
        for _ in range(slices):
            claimed = lifecycle.claim(job.id)
            if claimed is None:
                break
            run_slice(claimed)
    job.refresh_from_db()
    assert job.status in ENDED or job.status == Status.PAUSED, (job.status, job.error)
    return job


@contextmanager
def _without_keeper() -> Iterator[None]:
    """Threads see nothing of a test's transaction: to them no job exists. The one that renews the lease does no work
    here, nor does the one that writes rollouts which take half a second, as they do on a slow machine."""
    with (
        override_settings(JOB_LEASE_SECONDS=600),
        patch.object(lease, "POLL_SECONDS", 600),
        patch.object(rollout_writer, "FREE_LINGER", 600),
    ):
        yield


@contextmanager
def slices_of(settings: Any, seconds: float) -> Iterator[None]:
    """Slices of another length; 0 is one iteration each."""
    before = settings.JOB_SLICE_SECONDS
    settings.JOB_SLICE_SECONDS = seconds
    try:
        yield
    finally:
        settings.JOB_SLICE_SECONDS = before
