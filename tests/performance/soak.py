"""``python -m tests.performance.soak [minutes] [jobs]``: memory of ``manage.py up`` at work.

At shipped settings 20 jobs are at work and a reader asks for lists; what each process takes (PSS) is looked at four
times a minute. Ends with one JSON object; its exit code is 1 where a process grew by more than 5 % after the first ten
minutes.

Where a job ends another is started, so that starts and ends are in it too. Without workers in its way it takes all
processors that there are.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx

from agentcore_site.embedded.ports import free_port
from agentcore_site.lib import row_scope
from tests.performance.processor import family, proportional_mb
from tests.support.up import Up

MEASURED_EVERY_SECONDS: Final = 15.0
WARM_MINUTES: Final = 10
WINDOW: Final = 5  # minutes whose medians are compared
ALLOWED: Final = 0.05
CONFIG: Final = {"early_stopping": {"enabled": False}, "n_iterations": 300, "eval_samples": 1}
ROLES: Final = {  # by words of the command line
    "web": "web_server",
    "worker": "compute@",
    "worker of short tasks": "default@",
    "beat": "beat",
    "PostgreSQL": "postgres",
    "Valkey": "valkey-server",
}


def role_of(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return next((role for role, word in ROLES.items() if word in line), "")


def memory_mb(up: Up) -> dict[str, float]:
    """MB by process."""
    found: dict[str, float] = defaultdict(float)
    for pid in family(up.process.pid):
        role = "up" if pid == up.process.pid else role_of(pid)
        if role:  # PostgreSQL's sessions come and go with those who ask: all of its processes are counted as one
            found[role if role == "PostgreSQL" else f"{role} {pid}"] += proportional_mb(pid)
    return found


class Work:
    """Keeps ``count`` jobs at work."""

    def __init__(self, count: int) -> None:
        from django.contrib.auth import get_user_model

        from agentcore_site.tenancy.actors import Actor
        from experiences.agents.services.agents import agent_create

        self.actor = Actor(get_user_model().objects.get(username="olivia"))
        self.agents = [
            agent_create(self.actor, name=f"soak {n}", slug=f"soak-{n}", environment="reasoning_gym")
            for n in range(count)
        ]
        self.jobs: list[Any] = [None] * count
        self.started = self.completed = 0

    def top_up(self) -> None:
        from agentcore_site.jobs.models import ENDED, Job, Status
        from training.services.runs import run_start

        for n, job in enumerate(self.jobs):
            row = None if job is None else Job.objects.get(id=job)
            if row is None or row.status in ENDED:
                self.completed += row is not None and row.status == Status.COMPLETED
                config = CONFIG | {"seed": self.started}
                self.jobs[n] = run_start(self.actor, agent=self.agents[n], config=config).job_id
                self.started += 1


class Client:
    """Reads lists and a job."""

    def __init__(self, address: str, key: str) -> None:
        self.http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        self.asked = self.refused = 0

    def ask(self, job: Any) -> None:
        for path in ("/api/v1/jobs", "/api/v1/trajectories", f"/api/v1/jobs/{job}"):
            self.asked += 1
            try:
                self.refused += self.http.get(path).status_code != HTTPStatus.OK
            except httpx.HTTPError:
                self.refused += 1


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    folder.chmod(0o711)
    port = free_port(0)
    up = Up(folder / "data", "--port", str(port), "--demo", TRAINING_JOBS_PER_USER="1000")
    try:
        up.until("SELECT count(*) > 0 FROM auth_user WHERE username = 'olivia'")
        urls = up.urls()
        os.environ.update(
            DATABASE_URL=urls["database_url"],
            REDIS_URL=urls["redis_url"],
            DATA_DIR=str(up.data),
            DJANGO_SETTINGS_MODULE="agentcore_site.settings",
            TRAINING_JOBS_PER_USER="1000",
        )
        import django

        django.setup()
        row_scope.outside(row_scope.EVERYTHING)
        from agentcore_site.tenancy.models import Organization
        from agentcore_site.tenancy.services import api_key_create

        Organization.objects.update(max_active_jobs=1000)
        work = Work(count)
        _, key = api_key_create(work.actor, name="soak", scopes=["training:view"])
        return watched(up, work, Client(f"http://127.0.0.1:{port}", key), minutes)
    finally:
        up.stop()
        shutil.rmtree(folder, ignore_errors=True)


def watched(up: Up, work: Work, reader: Client, minutes: float) -> int:
    began = time.monotonic()
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    due = began
    while (now := time.monotonic()) < began + 60 * minutes:
        if now >= due:
            due = now + MEASURED_EVERY_SECONDS
            work.top_up()
            for name, mb in memory_mb(up).items():
                seen[name].append(((now - began) / 60, mb))
        reader.ask(work.jobs[0])
        time.sleep(1)
    grown = growth(seen, minutes)
    result = {
        "minutes": minutes,
        "jobs_started": work.started,
        "jobs_completed": work.completed,
        "asked": reader.asked,
        "refused": reader.refused,
        "grown": {name: round(100 * share, 1) for name, share in sorted(grown.items())},
        "largest_mb": {name: round(max(mb for _, mb in found)) for name, found in sorted(seen.items())},
    }
    print(json.dumps(result))
    return int(any(share > ALLOWED for share in grown.values()) or not grown)


def growth(seen: dict[str, list[tuple[float, float]]], minutes: float) -> dict[str, float]:
    """By process, how much more it takes in the last minutes than in those after it had warmed up, as a share. A
    process that came later is compared from ten minutes after it came."""
    found = {}
    for name, measurements in seen.items():
        born = measurements[0][0]
        early = [mb for at, mb in measurements if born + WARM_MINUTES <= at < born + WARM_MINUTES + WINDOW]
        late = [mb for at, mb in measurements if at >= minutes - WINDOW]
        if early and late:
            found[name] = statistics.median(late) / statistics.median(early) - 1
    return found


if __name__ == "__main__":
    sys.exit(main())
