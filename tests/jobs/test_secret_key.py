"""Hosts of one database have one SECRET_KEY: a process with another does not start, and takes no job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from agentcore_site import env, secret_key
from agentcore_site.jobs import tasks
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.support.running import SMALL_POOL
from tests.support.workers import environment
from training.services.runs import run_start

OTHER = "a key of another host that is long enough to be one"
CELERY = ["-m", "celery", "-A", "agentcore_site.celery"]
STARTS = {
    "worker": [*CELERY, "worker", "--queues", "compute.0", "--loglevel", "WARNING"],
    "beat": [*CELERY, "beat", "--pidfile", "", "--schedule", "{schedule}", "--loglevel", "WARNING"],
    "web": ["-m", "agentcore_site.web_server", "agentcore_site.asgi:application", "--port", "0", "--lifespan", "off"],
    "up": ["manage.py", "migrate", "--verbosity", "0"],
}
OTHERS = pytest.mark.thorough(reason="other programs begin with the same check")


@pytest.fixture
def known(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_key, "_same", [])
    secret_key.require_same()


@pytest.mark.parametrize("role", ["web", *(pytest.param(role, marks=OTHERS) for role in STARTS if role != "web")])
def test_no_process_starts_with_another_key(role: str, known: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *(part.format(schedule=tmp_path / "beat") for part in STARTS[role])],
        env=environment() | {"SECRET_KEY": OTHER},
        cwd=env.ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode != 0
    assert "Give every host the same SECRET_KEY" in done.stderr + done.stdout, done


def test_a_running_process_with_another_key_leaves_jobs_to_others(
    operator: Actor, agent: Agent, known: None, settings: Any
) -> None:
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 1})
    settings.SECRET_KEY = OTHER
    assert tasks.advance(str(run.job_id)) == "another key"
    assert Job.objects.get(id=run.job_id).status == Status.QUEUED


def test_a_key_is_changed_by_way_of_the_fallbacks(known: None, settings: Any) -> None:
    before = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OTHER, [before]
    assert run_checks(databases=["default"], tags=["database"]) == []
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = before, []
    with pytest.raises(secret_key.OtherSecretKey):
        secret_key.require_same()
