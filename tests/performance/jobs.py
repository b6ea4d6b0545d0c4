"""P1, P3, P6 and the speed of training: real workers, a real server, a real broker."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import quantiles
from typing import Any

import httpx

from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from experiences.models import Agent
from tests import factories
from tests.performance.processor import family, proportional_mb
from tests.performance.table import Figure, at_least, at_most
from tests.support.workers import Fleet, eventually
from training.models import Iteration, TrainingRun
from training.services.runs import run_start

JOBS = 100
NO_STOP = {"early_stopping": {"enabled": False}}


def people() -> tuple[Actor, Any]:
    home = factories.OrganizationFactory(slug="bench", name="Bench", max_active_jobs=1000)
    user = factories.UserFactory(username="bench")
    if not user.memberships.exists():
        factories.MembershipFactory(organization=home, user=user, role=Role.OPERATOR)
    return Actor(user), home


def start(actor: Actor, home: Any, name: str, **config: Any) -> TrainingRun:
    """A job of an agent of its own: several benches of one run take the same names."""
    slug = f"{name}-{Agent.objects.filter(organization=home).count()}"
    agent = factories.AgentFactory(organization=home, created_by=actor.user, name=name, slug=slug)
    return run_start(actor, agent=agent, config=NO_STOP | config)


def warm_up(actor: Actor, home: Any) -> None:
    """A small job with its proof on held-out queries, so that what follows is alone."""
    job = start(actor, home, "warm", n_iterations=20, seed=1).job
    eventually(lambda: Job.objects.get(id=job.id).ended, why="the first job")
    eventually(lambda: not Job.objects.exclude(status__in=ENDED).exists(), why="its proof on held-out queries")


def one_worker() -> list[Figure]:
    """A run of 3,200 trajectories alone on one worker: speed with everything stored, bookkeeping, memory."""
    actor, home = people()
    fleet = Fleet()
    try:
        worker = fleet.worker()
        fleet.beat()
        warm_up(actor, home)
        run = start(actor, home, "speed", n_iterations=200, seed=2)
        peak = 0.0
        while not (job := Job.objects.get(id=run.job_id)).ended:
            peak = max([peak, *map(proportional_mb, family(worker.pid))])
            time.sleep(0.05)
        run.refresh_from_db()
    finally:
        fleet.stop()
    assert job.status == Status.COMPLETED, job.error
    rows = Iteration.objects.filter(run=run).order_by("number")
    seconds = (rows.last().created_at - job.started_at).total_seconds()  # type: ignore[union-attr,operator]
    gaps = _gaps(list(rows.filter(selection__isnull=True)))
    return [
        at_least(
            "P3",
            "training with everything stored, one worker",
            run.trajectories / seconds,
            500,
            "trajectories/s",
            digits=0,
        ),
        at_most("P3", "bookkeeping of an iteration (median)", gaps, 10, "ms", digits=1),
        at_most("P6", "largest worker process while training, PSS", peak, 200, "MB", digits=0),
    ]


def _gaps(rows: list[Iteration]) -> float:
    """Median milliseconds from one commit to the next that were neither rollouts nor update."""
    found = []
    for before, after in pairwise(rows):
        if after.number == before.number + 1:
            between = (after.created_at - before.created_at).total_seconds() * 1000
            found.append(between - after.rollout_ms - after.update_ms)
    return sorted(found)[len(found) // 2]


def fairness() -> list[Figure]:
    """100 jobs queued at once on two workers: how even they are at half-time, and get_status meanwhile."""
    actor, home = people()
    _, key = api_key_create(actor, name="bench", scopes=["training:view"])
    runs = [
        start(actor, home, f"fair-{n}", n_iterations=100, eval_interval=100, eval_samples=1, seed=n)
        for n in range(JOBS)
    ]
    ids = [run.job_id for run in runs]
    fleet = Fleet()
    latencies: list[float] = []
    try:
        port = fleet.web()
        fleet.worker()
        fleet.worker()
        fleet.beat()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}) as client:
            eventually(lambda: _progress(ids)[1] > 0, why="the first progress")
            while True:
                status_ask(client, ids[len(latencies) % JOBS], latencies)
                progress = sorted(_progress(ids)[0])
                if sum(progress) / JOBS >= 0.5:
                    break
                time.sleep(0.05)
    finally:
        fleet.stop()
        Job.objects.filter(id__in=ids).update(status=Status.CANCELLED, lease_until=None)
    p95 = quantiles(latencies, n=20)[-1]
    return [
        at_least(
            "P3", f"{JOBS} jobs on two workers, slowest / fastest at half-time", progress[0] / progress[-1], 0.7, "x"
        ),
        at_most(
            "P1", f"get_status with {JOBS} jobs running, p95 of {len(latencies)} (target)", p95, 200, "ms", digits=1
        ),
        at_most("P1", "the same, the goal", p95, 10, "ms", digits=1),
    ]


def status_ask(client: httpx.Client, job_id: Any, latencies: list[float]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "training.get_status", "params": {"job_id": str(job_id)}}
    began = time.perf_counter()
    answer = client.post("/api/v1/jsonrpc", json=body)
    latencies.append((time.perf_counter() - began) * 1000)
    assert answer.json()["result"]["job_id"] == str(job_id), answer.text


def _progress(ids: list[Any]) -> tuple[list[float], float]:
    values = list(Job.objects.filter(id__in=ids).values_list("progress", flat=True))
    return values, max(values)
