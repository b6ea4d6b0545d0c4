"""``make chaos-hosts`` or ``python -m tests.performance.chaos_hosts [faults] [jobs] [iterations] [seed]``: two hosts
that share one site, under faults.

Each host is a data folder and, where that can be had, a user of its own. It has the roles web, worker, beat and
events of ``manage.py up`` at shipped settings. They share PostgreSQL behind PgBouncer, Valkey, RabbitMQ, three NATS
nodes and an S3 server. Each seed trains once undisturbed and again under faults at random moments, one of which takes
a whole host away. Policies, optimisers and rollouts of equal seeds have to be equal afterwards, and each event that
was committed has to be in the streams once. The last line is one JSON object; the status says whether that holds.
Nothing outside a folder of its own is touched; it ends by itself.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import redis

from agentcore_site import env
from agentcore_site.embedded.ports import answers, free_port, wait_until
from agentcore_site.embedded.supervisor import Process
from agentcore_site.lib import row_scope
from tests.performance.chaos import FROZEN, LONGEST, SEEDS, Takeovers, ended, launch, outcome
from tests.performance.cluster import NODES, SharedServices, in_streams, node, settled, until
from tests.support import pgbouncer
from tests.support.rabbitmq import SERVER, RabbitNode

PAUSE: Final = (1.0, 3.0)  # seconds between two faults, drawn each time
ROLES: Final = ("web", "worker", "beat", "events")
BACK_SECONDS: Final = 5.0  # then a role that ended is started again, as a host's own supervisor does
HOST_SECONDS: Final = 60.0  # that the host which was killed whole is away
USERS: Final = ("nobody", "daemon")
BUCKET: Final = "agentcore"
POOL: Final = 30


class Services(SharedServices):
    """The services that both hosts share."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "services")
        self.folder = folder
        self.pooler, self.objects = free_port(0), free_port(0)
        (folder / "rabbit").mkdir()
        cookie = folder / "rabbit" / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        ports = (free_port(0), free_port(0), free_port(0))
        self.rabbit = RabbitNode(folder / "rabbit", "rabbit", ports, secrets.token_hex(12))

    def start(self) -> None:
        super().start()
        place = self.folder / "pgbouncer"
        place.mkdir(mode=0o755)
        url = os.environ["DATABASE_URL"]
        pooler = pgbouncer.prepare(place, url, self.pooler, POOL)
        objects = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.objects)]
        rabbit = self.rabbit.environment
        for process in (
            Process("pgbouncer", pooler, lambda: answers(self.pooler)),
            Process("rabbit", [str(SERVER)], lambda: answers(self.rabbit.port), environment=rabbit, ready_seconds=120),
            Process("objects", objects, lambda: answers(self.objects)),
        ):
            self.supervisor.start(process)
        self._make_bucket()

    def shared(self) -> dict[str, str]:
        """The settings of a host."""
        return {
            "DATABASE_URL": pgbouncer.through(os.environ["DATABASE_URL"], self.pooler),
            "REDIS_URL": os.environ["REDIS_URL"],
            "CELERY_BROKER_URL": self.rabbit.url,
            "NATS_URL": os.environ["NATS_URL"],
            "NATS_REPLICAS": str(NODES),
            "AWS_STORAGE_BUCKET_NAME": BUCKET,
            "AWS_S3_ENDPOINT_URL": f"http://127.0.0.1:{self.objects}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "SECRET_KEY": os.environ["SECRET_KEY"],
        }

    def rows(self, query: str, *arguments: Any) -> list[Any]:
        with psycopg.connect(os.environ["DATABASE_OWNER_URL"], connect_timeout=5, autocommit=True) as connection:
            return connection.execute(query, arguments).fetchall()  # type: ignore[arg-type]

    def _make_bucket(self) -> None:
        import boto3

        where = f"http://127.0.0.1:{self.objects}"
        login = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        boto3.client("s3", endpoint_url=where, region_name="us-east-1", **login).create_bucket(Bucket=BUCKET)


class Host:
    """A data folder and the roles that run on it."""

    def __init__(self, folder: Path, number: int, shared: dict[str, str]) -> None:
        self.folder, self.port = folder / f"host{number}", free_port(0)
        self.folder.mkdir(mode=0o755)
        self.python, self.user, more = interpreter(USERS[number])
        if self.user:
            shutil.chown(self.folder, self.user)
        self._environment = bare() | shared | more | {"DATA_DIR": str(self.folder), "HOME": str(self.folder)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.away_until = 0.0

    def start(self, role: str) -> None:
        command = [self.python, str(env.ROOT / "manage.py"), "up", "--role", role]
        command += ["--port", str(self.port)] if role == "web" else []
        command += ["--workers", "2"] if role == "worker" else []
        with open(self.folder.parent / f"{self.folder.name}-{role}.log", "ab") as log:
            self.running[role] = subprocess.Popen(
                command, env=self._environment, user=self.user, cwd=env.ROOT, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def keep(self, ended_at: dict[tuple[str, str], float]) -> None:
        """Starts roles again that ended a while ago."""
        for role in ROLES:
            handle = self.running.get(role)
            if handle is not None and handle.poll() is None:
                continue
            since = ended_at.setdefault((self.folder.name, role), time.monotonic())
            if time.monotonic() > max(since + BACK_SECONDS, self.away_until):
                del ended_at[self.folder.name, role]
                self.start(role)

    def processes(self, role: str) -> list[int]:
        """The role's ``up`` and all that it started, that first."""
        handle = self.running.get(role)
        return [handle.pid, *below(handle.pid)] if handle is not None and handle.poll() is None else []

    def kill_whole(self) -> list[int]:
        """Everything at once, with no word to others. Returns the processes that were."""
        self.away_until = time.monotonic() + HOST_SECONDS
        gone = [pid for role in ROLES for pid in self.processes(role)]
        for pid in gone:
            send(pid, signal.SIGKILL)
        return gone


def interpreter(user: str) -> tuple[str, str | None, dict[str, str]]:
    """The Python, the user and the environment of a host: another user's where this one's packages can be read by
    them, else our own."""
    packages = str(Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages")
    for python, more in ((sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": packages})):
        if os.geteuid() != 0:
            break
        with suppress(OSError, KeyError):
            pwd.getpwnam(user)
            probe = [python, "-c", "import sys, django, numpy, psycopg; assert sys.version_info[:2] == (%d, %d)"]
            probe[-1] %= sys.version_info[:2]
            if not subprocess.run(probe, user=user, cwd=env.ROOT, env=bare() | more, capture_output=True).returncode:
                return python, user, more
    return sys.executable, None, {}


def bare() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def below(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in below(child))]


def line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


class Faults:
    """Each says which processes of workers it took away, or None where it found nothing to do."""

    def __init__(self, services: Services, hosts: list[Host], chance: random.Random) -> None:
        self.services, self.hosts, self.chance = services, hosts, chance
        self.frozen: list[tuple[float, int]] = []

    def _worker(self) -> tuple[int, list[int]] | None:
        """The main process of a worker that runs jobs, and its children."""
        for host in self.chance.sample(self.hosts, len(self.hosts)):
            for pid in host.processes("worker"):
                if "celery" in (line := line_of(pid)) and "compute@" in line and (children := below(pid)):
                    return pid, children
        return None

    def worker_child(self) -> list[int] | None:
        if (found := self._worker()) is None:
            return None
        victim = self.chance.choice(found[1])
        return [victim] if send(victim, signal.SIGKILL) else None

    def worker_parent(self) -> list[int] | None:
        found = self._worker()
        return found[1] if found and send(found[0], signal.SIGKILL) else None

    def worker_family(self) -> list[int] | None:
        if (found := self._worker()) is None:
            return None
        for pid in (*found[1], found[0]):
            send(pid, signal.SIGKILL)
        return found[1]

    def frozen_child(self) -> list[int] | None:
        found = self._worker()
        if found is None or self.frozen:
            return None
        victim = self.chance.choice(found[1])
        self.frozen.append((time.monotonic() + FROZEN, victim))
        return [victim] if send(victim, signal.SIGSTOP) else None

    def frozen_parent(self) -> list[int] | None:
        """Left as it is: its host has to see it."""
        found = self._worker()
        return [] if found and send(found[0], signal.SIGSTOP) else None

    def role(self) -> list[int] | None:
        """The ``up`` of a role; what it started follows it by itself."""
        host, role = self.chance.choice(self.hosts), self.chance.choice(ROLES)
        family = host.processes(role)
        return (family[1:] if role == "worker" else []) if family and send(family[0], signal.SIGKILL) else None

    def process(self) -> list[int] | None:
        """A web process, beat or feedback loop."""
        host, role = self.chance.choice(self.hosts), self.chance.choice(("web", "beat", "events"))
        family = host.processes(role)
        return [] if len(family) > 1 and send(family[1], signal.SIGKILL) else None

    def service(self) -> list[int] | None:
        name = self.chance.choice(("valkey", "rabbit", "pgbouncer", *map(node, range(NODES))))
        if name.startswith("nats") and not self.services.whole():
            return None  # two of three must work, or the cluster has no say
        return [] if self.services.kill(name) else None

    def postgres(self) -> list[int] | None:
        """An immediate shutdown, as a crash of the machine is to it."""
        return [] if self.services.kill("postgres", signal.SIGQUIT) else None

    def backends(self) -> list[int] | None:
        query = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'agentcore' AND random() < %s"
        )
        try:
            with psycopg.connect(os.environ["DATABASE_OWNER_URL"], connect_timeout=3) as connection:
                found = connection.execute(query, [self.chance.choice([0.2, 0.5, 1.0])]).fetchone()
                return [] if found and found[0] else None
        except (psycopg.Error, OSError):
            return None

    def flushed(self) -> list[int] | None:
        try:
            with redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=3) as client:
                return [] if client.flushall() else None
        except (redis.RedisError, OSError):
            return None

    def objects(self) -> list[int] | None:
        """The S3 server is stopped for some seconds. It keeps objects in memory: killed, it would lose them."""
        if not self.services.kill("objects", signal.SIGSTOP):
            return None
        time.sleep(self.chance.uniform(2, 6))
        self.services.kill("objects", signal.SIGCONT)
        return []

    def thaw(self, *, every: bool = False) -> None:
        for item in list(self.frozen):
            if every or time.monotonic() >= item[0]:
                send(item[1], signal.SIGCONT)
                self.frozen.remove(item)


WEIGHTS: Final = {
    "worker_child": 10, "backends": 6, "worker_parent": 3, "worker_family": 3, "frozen_child": 2, "frozen_parent": 2,
    "role": 6, "process": 5, "service": 8, "postgres": 2, "flushed": 2, "objects": 2,
}  # fmt: skip


def wreak(faults: Faults, jobs: dict[str, str], most: int) -> tuple[Counter[str], Takeovers]:
    """Faults until the jobs have ended or ``most`` were made; then waits for the end."""
    services, chance = faults.services, faults.chance
    made, takeovers = Counter[str](), Takeovers(services, jobs)
    began, names, weights = time.monotonic(), list(WEIGHTS), list(WEIGHTS.values())
    while not ended(services, jobs) and time.monotonic() - began < LONGEST:
        faults.thaw(every=made.total() >= most)
        takeovers.check()
        if made.total() >= most:
            time.sleep(0.5)
            continue
        if made.total() >= most // 2 and not made["host"]:
            takeovers.lost(faults.chance.choice(faults.hosts).kill_whole(), "killed")
            made["host"] += 1
        name = chance.choices(names, weights)[0]
        fault: Callable[[], list[int] | None] = getattr(faults, name)
        if (gone := fault()) is not None:
            made[name] += 1
            takeovers.lost(gone, "frozen" if name == "frozen_child" else "killed")
        until_then = time.monotonic() + chance.uniform(*PAUSE)
        while time.monotonic() < until_then:
            takeovers.check()
            time.sleep(0.25)
    faults.thaw(every=True)
    return made, takeovers


def report(services: Services, calm: dict[str, str], wild: dict[str, str], seeds: list[int]) -> dict[str, Any]:
    """Counts of what differs, was lost and was doubled."""
    from django.db import connection

    from evaluation.events.models import OutboxEvent

    connection.close()
    until(settled, 240)
    expected = {seed: outcome(services, calm[f"calm-{seed}"]) for seed in set(seeds)}
    identical = lost = doubled = 0
    for index, seed in enumerate(seeds):
        found = outcome(services, wild[f"wild-{index}"])
        identical += found == expected[seed]
        lost += (found["status"] != "completed") + max(0, expected[seed]["rollouts"] - found["rollouts"])
        doubled += found["doubled"]
        if other := {name: (value, due) for name, due in expected[seed].items() if (value := found[name]) != due}:
            print(f"wild-{index}:", other, flush=True)
    import asyncio

    stored = asyncio.run(in_streams())
    noted = {str(id) for id in OutboxEvent.objects.filter(withheld="").values_list("message_id", flat=True)}
    return {
        "jobs": len(seeds),
        "identical": identical,
        "lost": lost,
        "doubled": doubled,
        "events": len(noted),
        "events_lost": len(noted - set(stored)),
        "events_doubled": sum(stored.values()) - len(stored),
    }


def main() -> int:
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # what was started is ended
    arguments = [int(word) for word in sys.argv[1:]]
    most, count, iterations, seed = [*arguments, *(200, 2 * SEEDS, 1_000, 0)[len(arguments) :]][:4]
    seed = seed or random.SystemRandom().randrange(2**32)
    folder = Path(tempfile.mkdtemp(prefix="agentcore-hosts-"))
    folder.chmod(0o711)
    os.environ |= {
        "DATA_DIR": str(folder / "here"),
        "SECRET_KEY": secrets.token_urlsafe(48),
        "DJANGO_SETTINGS_MODULE": "agentcore_site.settings",
        "LOG_LEVEL": "ERROR",
    }
    for name in ("services", "here"):
        (folder / name).mkdir(mode=0o711)
    services, hosts, stopping = Services(folder), list[Host](), threading.Event()
    ended_at: dict[tuple[str, str], float] = {}

    def keep() -> None:
        while not stopping.wait(0.5):
            for host in hosts:
                host.keep(ended_at)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        services.start()
        services.manage("load_prices", "--verbosity", "0")
        services.manage("seed_demo")
        hosts.extend(Host(folder, number, services.shared()) for number in range(2))
        assert wait_until(lambda: all(answers(host.port) for host in hosts), 300), "the hosts did not start"
        import django

        django.setup()
        row_scope.outside(row_scope.EVERYTHING)
        from agentcore_site.tenancy.models import Organization
        from evaluation.events.models import EventPublisher

        for organization in Organization.objects.all():
            EventPublisher.objects.create(organization=organization)
        seeds = [index % SEEDS for index in range(count)]
        calm = launch([(f"calm-{one}", one) for one in sorted(set(seeds))], iterations)
        began = time.monotonic()
        while not ended(services, calm) and time.monotonic() - began < LONGEST:
            time.sleep(1)
        print(f"undisturbed: {len(calm)} jobs in {time.monotonic() - began:.0f} s", flush=True)
        wild = launch([(f"wild-{index}", one) for index, one in enumerate(seeds)], iterations)
        began = time.monotonic()
        made, takeovers = wreak(Faults(services, hosts, random.Random(seed)), wild, most)
        seconds = time.monotonic() - began
        for _ in range(60):  # PostgreSQL may be coming back
            if ended(services, wild):
                break
            time.sleep(2)
        found = report(services, calm, wild, seeds) | {
            "faults": made.total(),
            "by_kind": dict(made),
            "users": len({host.user for host in hosts}) if hosts[0].user else 1,
            "seed": seed,
            "seconds": round(seconds),
        }
        for kind, taken in takeovers.seconds.items():
            name = "takeover" if kind == "killed" else f"takeover_{kind}"
            found[f"{name}_p50_s"] = round(statistics.median(taken), 1) if taken else None
            found[f"{name}_n"] = len(taken)
            held = takeovers.held[kind]  # of these seconds, until the job was free
            found[f"{name}_held_p50_s"] = round(statistics.median(held), 1) if held else None
        print(json.dumps(found), flush=True)
        wrong = found["lost"] + found["doubled"] + found["events_lost"] + found["events_doubled"]
        return 1 if wrong or found["identical"] != found["jobs"] else 0
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # until all that was started is ended
        stopping.set()
        keeper.join()
        for host in hosts:
            host.kill_whole()
        services.supervisor.stopping.set()
        services.kill("rabbit")  # the script that it runs in passes no SIGTERM on
        services.supervisor.stop()
        subprocess.run(["epmd", "-port", services.rabbit.environment["ERL_EPMD_PORT"], "-kill"], capture_output=True)
        if os.environ.get("KEEP"):
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
