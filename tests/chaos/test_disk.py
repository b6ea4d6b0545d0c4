"""A disk that fills up: jobs wait with the reason before anything dies, and go on by themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_site import health
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.errors import Insufficient
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset
from tests.support.callers import Caller
from tests.support.running import SMALL_POOL
from tests.support.workers import Fleet, eventually
from training.services.checkpoint_uploads import checkpoint_upload
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="only root can mount a small disk"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 900 MiB of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900m,mode=711", "tmpfs", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.thorough(reason="a whole run on a small disk")
def test_a_job_waits_for_room_and_goes_on_by_itself(
    operator: Actor, agent: Agent, fleet: Fleet, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(os.environ["DATA_DIR"]) / "secret_key", small_disk)
    monkeypatch.setenv("DATA_DIR", str(small_disk))
    fleet.worker()
    fleet.beat()
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 300})
    job = Job.objects.filter(id=run.job_id)
    eventually(lambda: job.filter(training_run__iteration__gte=3).exists(), why="it trains")

    filler = small_disk / "filler"
    with open(filler, "wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 500 * 2**20)
    stopped = eventually(lambda: job.filter(status=Status.PAUSED).first(), why="it waits for room")
    assert stopped.status_reason == Reason.DISK_FULL and "nearly full" in stopped.error

    filler.unlink()
    ended = eventually(lambda: job.filter(finished_at__isnull=False).first(), seconds=120, why="it goes on")
    assert ended.status == Status.COMPLETED and ended.crashes == 0


def test_a_launch_is_refused_with_what_to_do(operator: Actor, agent: Agent, settings: Any) -> None:
    settings.DISK_MINIMUM_FREE_MB = shutil.disk_usage(settings.DATA_DIR).total // 2**20 + 1
    assert health.room().status == health.DEGRADED and "MiB are free" in health.room().detail
    with pytest.raises(Insufficient, match="Ask an admin to free some room"):
        run_start(operator, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 1})


def test_uploads_and_traces_from_elsewhere_are_refused_too(operator: Actor, agent: Agent, settings: Any) -> None:
    settings.DISK_MINIMUM_FREE_MB = shutil.disk_usage(settings.DATA_DIR).total // 2**20 + 1
    with pytest.raises(Insufficient, match="disk is nearly full"):
        dataset_create(operator, name="numbers", rows=[{"query": "what is 1?", "expected_outcome": {"answer": "1"}}])
    with pytest.raises(Insufficient, match="disk is nearly full"):
        checkpoint_upload(operator, agent, b"", sha256="0" * 64)
    spans = Caller(operator.user).post("otlp/v1/traces", {"resourceSpans": []})
    assert spans.status_code == 503 and not Dataset.objects.exists()  # exporters try again after a 503
