"""``make bench ARGS=paid``: kill -9 at random moments of jobs that pay for their calls, with the leases' own time.

Runs (training, validation, reflection, then their evaluations) and evolutions go on side by side. Nothing is expired by
hand: a job that was killed is taken up by a sweep after its lease. Every request of the ledger is identified by the
attempt that made it: one whose place (a rollout, a question) was kept before is paid twice, one whose place a later
attempt had to ask for again is lost. ``PAID_KILLS`` says how many kills there are.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from budgets.ledger.reconciliation import differences
from budgets.models import Reservation
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, Question, TrajectoryRecord
from experiences.playbooks.services.evolutions import evolution_queue
from tests import factories
from tests.chaos.test_paid_kills import CONCURRENCY, UNDER_WAY
from tests.performance.table import Figure, at_most
from tests.support.llm_server import ModelServer
from tests.support.playbooks import add, lived, playbook_of, suggesting
from tests.support.simulated_model import simulated_server
from tests.support.workers import Fleet
from tests.support.world import World
from training.services.runs import run_start

KILLS: Final = int(os.environ.get("PAID_KILLS", "45"))
LONGEST: Final = 1_500.0  # seconds that all of it may take
PAUSE: Final = (2.0, 9.0)  # seconds between two kills, drawn each time
LATENCY: Final = 0.5  # seconds of an answer
RUNS: Final = 3
EVOLUTIONS: Final = 4
MOST_OF: Final = {"training": 12, "evolution": 4}  # kills of one job, so that each kind gets its share
WRITTEN: Final = timedelta(seconds=2)  # what ended so long ago is stored, or its worker was dead
WORLD: Final = World(7)
PRICE: Final = (150_000, 600_000)
CONFIG: Final = {
    "n_iterations": 16,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "eval_interval": 3,
    "eval_samples": 2,
    "max_budget_usd": 5.0,
    "early_stopping": {"enabled": False},
    "context": {"epochs": 2, "ship_confidence": 0.7},
}


@dataclass(frozen=True)
class Call:
    """One request as the ledger has it. ``place`` is the rollout or question that it was made for; ``attempt`` the
    claim of a job in which it was made."""

    stage: str
    job: str
    attempt: int
    place: str
    at: datetime


def calls_of(jobs: list[Any]) -> Iterator[Call]:
    """Every request that was held for in these jobs' budgets."""
    held = Reservation.objects.filter(job_id__in=jobs).order_by("id")
    for key, payer, at in held.values_list("key", "job_id", "created_at"):
        _, work, kind, *rest = key.split("/")
        suffix, _, attempt = work.rpartition(".")
        place = rest[:-2]  # without the numbers of the call and of its attempt
        if kind == "evaluation":
            place.pop(2)  # the part's number: arm, line and rollout say which it is
        named = {"deltas": "evolution", "insights": "evolution"}.get(
            kind, "validation" if kind.startswith("selection") else kind
        )
        yield Call(named, suffix or str(payer), int(attempt), "/".join([kind, *place]), at)


def kept(jobs: list[Any]) -> dict[tuple[str, str], datetime]:
    """The latest time at which each place of these jobs had been kept, by job and place."""
    found: dict[tuple[str, str], datetime] = {}
    fields = ("job_id", "purpose", "arm", "line", "iteration", "scenario", "rollout", "created_at", "duration_ms")
    for job, purpose, arm, line, iteration, scenario, rollout, begun, ms in TrajectoryRecord.objects.filter(
        job_id__in=jobs
    ).values_list(*fields):
        kind = {"selection": f"selection.{line}", "evaluation": f"evaluation/{arm}/{line}"}.get(purpose, purpose)
        owner = str(job)[-12:] if purpose == "evaluation" else str(job)
        written = begun + timedelta(milliseconds=ms) + WRITTEN
        found[owner, f"{kind}/{iteration}/{scenario}/{rollout}"] = written
    for job, key, at in Question.objects.filter(job_id__in=jobs).values_list("job_id", "key", "at"):
        kind = "" if key.startswith(("deltas/", "insights/")) else "reflection/"
        found[str(job), f"{kind}{key}"] = at
    return found


def agent_of(admin: Actor, server: ModelServer, name: str) -> Agent:
    endpoint = endpoint_create(
        admin,
        name=f"of {name}",
        base_url=server.base_url,
        model="small",
        api_key="sk-bench",
        options={"max_retries": 0},
    )
    return agent_create(
        admin, name=name, runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=200
    )


def begun(stack: ExitStack) -> list[Any]:
    """Starts everything; the ids of the jobs."""
    home = factories.OrganizationFactory(slug="paid", name="Paid", max_active_jobs=1000)
    user = factories.UserFactory(username="paid")
    factories.MembershipFactory(organization=home, user=user, role=Role.ADMIN)
    admin = Actor(user)
    price_set(admin, model="small", organization=home, input_micros=PRICE[0], output_micros=PRICE[1])
    world = stack.enter_context(simulated_server(WORLD, prices={"small": PRICE}, latency_s=LATENCY))
    lesson = "Name the depot when a parcel is late, so that the customer can ask there."
    brain = lambda _: suggesting(add(lesson, confidence=0.85))  # noqa: E731
    clerk = stack.enter_context(ModelServer(brain=brain, prices={"small": PRICE}, latency_s=20 * LATENCY))
    jobs = []
    for number in range(RUNS):
        agent = agent_of(admin, world, f"Learner {number}")
        jobs.append(run_start(admin, agent=agent, rows=WORLD.rows(80, 7), config=CONFIG | {"seed": number}).job_id)
    for number in range(EVOLUTIONS):
        agent = agent_of(admin, clerk, f"Clerk {number}")
        playbook = playbook_of(admin, agent)
        lived(admin, agent, 3)
        jobs.append(evolution_queue(admin, playbook).job_id)
    return jobs


class Killer:
    """Ends processes that hold a job, at random moments."""

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self.fleet, self.chance = fleet, chance
        self.worker = fleet.worker(concurrency=3)
        self.kills: Counter[Any] = Counter()

    def strike(self) -> None:
        """One kill, if there is a job to hit: of its process, or now and then of the worker with all its children."""
        held = list(Job.objects.filter(status=Status.RUNNING, lease_until__isnull=False))
        free = [job for job in held if self.kills[job.id] < MOST_OF.get(job.kind, KILLS)]
        if not free:
            return
        chosen = self.chance.choice(free)
        if self.chance.random() < 0.1 and len(free) == len(held):
            self.fleet.kill(self.worker)
            self.kills.update(job.id for job in held)
            self.worker = self.fleet.worker(concurrency=3)
            return
        try:
            os.kill(int(chosen.worker.rsplit(":", 1)[1]), signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills[chosen.id] += 1


def killed(jobs: list[Any]) -> Counter[Any]:
    """Kills until there were enough; then waits for the end of every job. Kills by job."""
    fleet, ends = Fleet(), time.monotonic() + LONGEST
    try:
        killer = Killer(fleet, random.Random())
        fleet.beat()
        while Job.objects.exclude(status__in=ENDED).exists() and time.monotonic() < ends:
            if killer.kills.total() < KILLS:
                killer.strike()
            time.sleep(killer.chance.uniform(*PAUSE))
        return killer.kills
    finally:
        fleet.stop()


def random_kills() -> list[Figure]:
    with ExitStack() as stack:
        jobs = begun(stack)
        kills = killed(jobs)
    ended = list(Job.objects.filter(organization__slug="paid"))
    wrong = [f"{job.kind}: {job.status} {job.error}" for job in ended if job.status != Status.COMPLETED]
    assert not wrong and differences() == [], (wrong, differences())
    made, stored = list(calls_of(jobs)), kept([job.id for job in ended])
    unknown = {(one.job, one.place) for one in made} - set(stored)
    assert not unknown, f"calls of nothing that was kept in the end: {sorted(unknown)[:5]}"
    twice = [one for one in made if one.at > stored[one.job, one.place]]
    last: dict[tuple[str, str], int] = {}
    for one in made:
        last[one.job, one.place] = max(one.attempt, last.get((one.job, one.place), 0))
    lost = [one for one in made if one.attempt < last[one.job, one.place]]
    worst: Counter[tuple[str, str, int]] = Counter((one.stage, one.job, one.attempt) for one in lost)
    each = Counter(one.stage for one in lost)
    print(f"{kills.total()} kills, {len(made)} calls, kept {len(stored)}; lost by stage: {dict(each)}", file=sys.stderr)
    for one in twice[:5]:
        print("twice:", one, stored[one.job, one.place], file=sys.stderr)
    name = f"calls paid again though their answer was kept, {kills.total()} kills at random moments, {len(made)} calls"
    figures = [Figure("J4", name, str(len(twice)), "0", float("inf") if twice else 0.0)]
    for stage, most in (UNDER_WAY | {"validation": UNDER_WAY["evaluation"]}).items():
        hit = max((count for (of, _, _), count in worst.items() if of == stage), default=0)
        asked = sum(one.stage == stage for one in made)
        figures.append(
            at_most("J4", f"{stage}: most calls lost in one kill (of {asked})", hit, most, "calls", digits=0)
        )
    figures.append(
        at_most("J4", "calls lost a kill, on average", len(lost) / max(1, kills.total()), CONCURRENCY, "calls")
    )
    return figures
