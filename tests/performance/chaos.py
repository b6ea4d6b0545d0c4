"""``python -m tests.performance.chaos [faults] [jobs] [iterations]``: jobs of ``manage.py up`` under faults.

At shipped settings each seed trains once undisturbed and once or more under faults, which come at random moments, of
every kind below, one after the other. Afterwards policies, optimisers, rollouts and figures of equal seeds have to be
equal. Nothing outside the data folder of its own is touched; it ends by itself.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
import redis

from agentcore_site.lib import row_scope
from tests.support.up import Up

SEEDS: Final = 6
CONFIG: Final = {
    "early_stopping": {"enabled": False},
    "eval_samples": 1,
    "checkpoint_interval": 10,
}
PAUSE: Final = (2.0, 5.0)  # seconds between two faults, drawn each time
FROZEN: Final = 40.0  # longer than a lease
LONGEST: Final = 3_000.0  # seconds that all of it may take
FILLER: Final = "filler"
# Steps without what a clock says.
ROLLOUTS: Final = """
SELECT count(*), count(DISTINCT (iteration, scenario, rollout)),
       md5(string_agg(md5(steps::text), '' ORDER BY iteration, scenario, rollout))
FROM (SELECT iteration, scenario, rollout,
             (SELECT jsonb_agg(s - 'timestamp' - 'duration_ms') FROM jsonb_array_elements(steps) s) AS steps
      FROM experiences_trajectory WHERE job_id = %s AND purpose = 'training') t
"""


class Site(Protocol):
    """A site whose database can be asked."""

    def rows(self, query: str, *arguments: Any) -> list[Any]: ...


class Stack:
    """The processes of one ``up`` by name, and what can be done to them."""

    def __init__(self, up: Up, chance: random.Random) -> None:
        self.up, self.chance = up, chance
        self.frozen: list[tuple[float, int]] = []

    def children(self, pid: int) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(path.parent.name))
        return found

    def named(self, *words: str) -> int:
        """The process of the supervisor whose command line holds all the words; 0 while it is down."""
        for pid in self.children(self.up.process.pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if all(word in line for word in words):
                return pid
        return 0

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
        try:
            os.kill(pid, number) if pid else None
        except ProcessLookupError:
            return False
        return bool(pid)

    # -- faults: each says whether it found its victim --------------------------------------------------------------

    def worker_child(self) -> bool:
        children = self.children(self.named("celery", "compute@"))
        return self.kill(self.chance.choice(children)) if children else False

    def worker_parent(self) -> bool:
        return self.kill(self.named("celery", "compute@"))

    def worker_family(self) -> bool:
        parent = self.named("celery", "compute@")
        family = [*self.children(parent), parent] if parent else []
        killed = [self.kill(pid) for pid in family]  # the children first, then the parent
        return bool(killed) and all(killed)

    def frozen_child(self) -> bool:
        children = self.children(self.named("celery", "compute@"))
        if not children or len(self.frozen) >= 1:
            return False
        pid = self.chance.choice(children)
        self.frozen.append((time.monotonic() + FROZEN, pid))
        return self.kill(pid, signal.SIGSTOP)

    def web(self) -> bool:
        return self.kill(self.named("web_server"))

    def beat(self) -> bool:
        return self.kill(self.named("celery", "beat"))

    def helper(self) -> bool:
        return self.kill(self.named("celery", "default@"))

    def valkey(self) -> bool:
        return self.kill(self.named("valkey-server"))

    def flushed(self) -> bool:
        try:
            with redis.Redis.from_url(self.up.urls()["redis_url"], socket_timeout=3) as client:
                return bool(client.flushall())
        except (redis.RedisError, OSError, ValueError):
            return False

    def postgres(self) -> bool:
        """An immediate shutdown, as a crash of the machine is to it; the supervisor starts it again."""
        return self.kill(self.named("bin/postgres"), signal.SIGQUIT)

    def backends(self) -> bool:
        """Some or all sessions of the application."""
        query = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'agentcore' AND random() < %s"
        )
        try:
            with psycopg.connect(self.up.urls()["database_owner_url"], connect_timeout=3) as connection:
                found = connection.execute(query, [self.chance.choice([0.2, 0.5, 1.0])]).fetchone()
                return bool(found and found[0])
        except (psycopg.Error, OSError, ValueError):
            return False

    def disk(self) -> bool:
        """Leaves less room than shipped settings ask for, for some seconds; only on the small disk of its own."""
        free = shutil.disk_usage(self.up.data).free - 400 * 2**20
        if free <= 0 or os.geteuid() != 0:
            return False
        with open(self.up.data / FILLER, "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, free)
        time.sleep(6)
        (self.up.data / FILLER).unlink()
        return True

    def thaw(self, *, all: bool = False) -> None:
        for item in list(self.frozen):
            if all or time.monotonic() >= item[0]:
                self.kill(item[1], signal.SIGCONT)
                self.frozen.remove(item)


WEIGHTS: Final = {
    "worker_child": 10, "backends": 8, "worker_parent": 3, "worker_family": 3, "frozen_child": 2, "web": 3, "beat": 3,
    "helper": 2, "valkey": 3, "flushed": 3, "postgres": 3, "disk": 1,
}  # fmt: skip


def launch(names: list[tuple[str, int]], iterations: int) -> dict[str, str]:
    """One agent and job for each (name, seed). Returns job ids by name."""
    from django.contrib.auth import get_user_model

    from agentcore_site.tenancy.actors import Actor
    from experiences.agents.services.agents import agent_create
    from training.services.runs import run_start

    olivia = Actor(get_user_model().objects.get(username="olivia"))
    jobs = {}
    for name, seed in names:
        agent = agent_create(olivia, name=name, slug=name, environment="reasoning_gym")
        jobs[name] = str(
            run_start(olivia, agent=agent, config=CONFIG | {"seed": seed, "n_iterations": iterations}).job_id
        )
    return jobs


def outcome(up: Site, job: str) -> dict[str, Any]:
    """The values that have to be equal for equal seeds, by name."""
    import hashlib

    import numpy as np

    from training.checkpoint_bytes import checkpoint_load
    from training.models import TrainingRun
    from training.policies.archive import unpack
    from training.services import checkpoints

    run = TrainingRun.objects.select_related("job").get(job_id=job)
    latest = checkpoints.latest(run)
    assert latest is not None
    state = {key: value for key, value in unpack(checkpoint_load(latest)).items() if key != "policy/version"}
    digest = hashlib.sha256()
    for key in sorted(state):
        value = state[key]
        digest.update(key.encode())
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value, sort_keys=True).encode())
    [(rollouts, distinct, checksum)] = up.rows(
        ROLLOUTS,
        job,
    )
    [(events, gaps)] = up.rows("SELECT count(*), max(seq) - count(*) FROM jobs_jobevent WHERE job_id = %s", job)
    return {
        "status": run.job.status,
        "error": run.job.error,
        "iterations": run.iteration,
        "policy": digest.hexdigest(),
        "rollouts": rollouts,
        "doubled": rollouts - distinct,
        "steps": checksum,
        "gaps in events": gaps,
        "events": bool(events),
    }


def ended(up: Site, jobs: dict[str, str]) -> bool:
    try:
        query = "SELECT count(*) FROM jobs_job WHERE id::text = ANY(%s) AND finished_at IS NULL"
        [(left,)] = up.rows(query, list(jobs.values()))
    except (psycopg.Error, OSError, ValueError):
        return False
    return bool(left == 0)


class Takeovers:
    """Seconds in which a killed or frozen worker held a job, until the job was put back, and seconds until the next
    attempt. There it may wait for a worker's turn, and for services that other faults took away."""

    def __init__(self, up: Site, jobs: dict[str, str]) -> None:
        self.up, self.jobs = up, jobs
        self.since: dict[str, tuple[float, int, str]] = {}
        self.held: dict[str, list[float]] = {"killed": [], "frozen": []}
        self.seconds: dict[str, list[float]] = {"killed": [], "frozen": []}
        self._freed: set[str] = set()

    def lost(self, pids: list[int], kind: str) -> None:
        """These processes are gone: the jobs that they held are waited for."""
        for job, attempt, worker in self._held():
            if int(worker.rsplit(":", 1)[1]) in pids and job not in self.since:
                self.since[job] = (time.monotonic(), attempt, kind)
                self._freed.discard(job)

    def check(self) -> None:
        for job, (began, attempt, kind) in list(self.since.items()):
            try:
                [(now, held, finished)] = self.up.rows(
                    "SELECT attempt, lease_until IS NOT NULL AND status = 'running', finished_at IS NOT NULL"
                    " FROM jobs_job WHERE id = %s",
                    job,
                )
            except (psycopg.Error, OSError, ValueError):
                continue
            if job not in self._freed and (now > attempt or not held):
                self._freed.add(job)
                self.held[kind].append(time.monotonic() - began)
            if now > attempt or finished:
                self.seconds[kind].append(time.monotonic() - began)
                del self.since[job]

    def _held(self) -> list[Any]:
        query = "SELECT id::text, attempt, worker FROM jobs_job WHERE lease_until IS NOT NULL AND status = 'running'"
        try:
            return self.up.rows(query)
        except (psycopg.Error, OSError, ValueError):
            return []


def wreak(up: Up, jobs: dict[str, str], most: int, chance: random.Random) -> tuple[Counter[str], Takeovers]:
    """Faults until the jobs have ended or ``most`` were made; then waits for the end."""
    stack, made, takeovers = Stack(up, chance), Counter[str](), Takeovers(up, jobs)
    began = time.monotonic()
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    while not ended(up, jobs) and time.monotonic() - began < LONGEST:
        stack.thaw()
        takeovers.check()
        if made.total() >= most:
            stack.thaw(all=True)
            time.sleep(0.5)
            continue
        name = chance.choices(names, weights)[0]
        before = set(stack.children(stack.named("celery", "compute@")))
        fault: Callable[[], bool] = getattr(stack, name)
        if fault():
            made[name] += 1
            if name == "frozen_child":
                takeovers.lost([stack.frozen[-1][1]], "frozen")
            elif name.startswith("worker"):
                gone = [pid for pid in before if not Path(f"/proc/{pid}/exe").exists()]
                takeovers.lost(gone or sorted(before), "killed") if gone else None
        until = time.monotonic() + chance.uniform(*PAUSE)
        while time.monotonic() < until:
            takeovers.check()
            time.sleep(0.25)
    stack.thaw(all=True)
    return made, takeovers


def main() -> int:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2 * SEEDS
    iterations = int(sys.argv[3]) if len(sys.argv) > 3 else 400  # of a job: a dozen of 400 see some 60 faults
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o711)
    if os.geteuid() == 0:  # a disk of its own, which can be filled without harm to others
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g,mode=711", "tmpfs", folder], check=True)
    up = Up(folder / "data", "--port", "0", "--demo", "--seed", "99")
    try:
        up.until("SELECT count(*) > 0 FROM auth_user WHERE username = 'olivia'")
        urls = up.urls()
        os.environ.update(
            DATABASE_URL=urls["database_url"],
            REDIS_URL=urls["redis_url"],
            DATA_DIR=str(up.data),
            DJANGO_SETTINGS_MODULE="agentcore_site.settings",
        )
        import django

        django.setup()
        row_scope.outside(row_scope.EVERYTHING)
        seeds = [index % SEEDS for index in range(count)]
        calm = launch([(f"calm-{seed}", seed) for seed in sorted(set(seeds))], iterations)
        began = time.monotonic()
        while not ended(up, calm) and time.monotonic() - began < LONGEST:
            time.sleep(1)
        print(f"undisturbed: {len(calm)} jobs in {time.monotonic() - began:.0f} s", flush=True)
        wild = launch([(f"wild-{index}", seed) for index, seed in enumerate(seeds)], iterations)
        made, takeovers = wreak(up, wild, most, random.Random(7))
        for _ in range(60):  # PostgreSQL may be coming back
            if ended(up, wild):
                break
            time.sleep(2)
        return report(up, calm, wild, seeds, made, takeovers)
    finally:
        up.stop()
        if os.geteuid() == 0:
            subprocess.run(["umount", "--lazy", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def report(
    up: Up, calm: dict[str, str], wild: dict[str, str], seeds: list[int], made: Counter[str], takeovers: Takeovers
) -> int:
    from django.db import connection

    connection.close()
    expected = {seed: outcome(up, calm[f"calm-{seed}"]) for seed in set(seeds)}
    differ = 0
    for index, seed in enumerate(seeds):
        found = outcome(up, wild[f"wild-{index}"])
        if found != expected[seed]:
            differ += 1
            other = {
                name: (value, expected[seed][name]) for name, value in found.items() if value != expected[seed][name]
            }
            print(f"wild-{index}:", other)
    print(f"{made.total()} faults: {dict(made)}")
    for words, found in (("put back", takeovers.held), ("taken over", takeovers.seconds)):
        for kind, seconds in found.items():
            if seconds:
                middle, longest = statistics.median(seconds), max(seconds)
                print(f"{kind}: {words} after {middle:.1f} s (median), {longest:.1f} s at most, n = {len(seconds)}")
    print(f"{len(seeds)} jobs: {len(seeds) - differ} equal to the undisturbed run, {differ} not")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
