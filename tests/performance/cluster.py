"""``python -m tests.performance.cluster [rounds] [seed]``: three NATS servers, and what is killed under load.

Trajectories are stored here and published by agents elsewhere, without a pause. In each round the stream's leader,
the relay, the consumers and the database are killed by SIGKILL, in an order and at moments that chance draws.
Afterwards the streams must hold what was committed, once each, and the tables what the streams acknowledged, once each.
Services of its own, at shipped settings, in a folder that goes at the end. The last line is one JSON object; the status
says whether it holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agentcore_site import env
from agentcore_site.embedded.nats import NatsServer
from agentcore_site.embedded.ports import answers, free_port
from agentcore_site.embedded.stack import Stack
from agentcore_site.embedded.supervisor import Process
from agentcore_site.lib import row_scope

NODES: Final = 3
STREAM: Final = "RL_TRAJECTORIES"
STORED_AT_ONCE: Final = 10  # trajectories of a transaction
EVERY: Final = 0.05  # seconds between two transactions, and between two messages of a publisher
PUBLISHERS: Final = 4
PAUSE: Final = (0.2, 1.5)  # seconds between two kills
READING_SECONDS: Final = 60.0
SETTLING_SECONDS: Final = 240.0  # leases of those that were killed end meanwhile


class SharedServices:
    """PostgreSQL, Valkey and a NATS cluster, each started again when it has ended. Their addresses are in the
    environment."""

    def __init__(self, folder: Path) -> None:
        self.stack = Stack(folder, lambda message: None, any_port=True)
        self.supervisor = self.stack.supervisor
        self.ports = [free_port(0) for _ in range(2 * NODES)]
        self.urls = [f"nats://127.0.0.1:{port}" for port in self.ports[:NODES]]
        threading.Thread(target=self._watch, daemon=True).start()

    def start(self) -> None:
        for name, url in self.stack.start().items():
            os.environ[name.upper()] = url
        os.environ |= {"NATS_URL": ",".join(self.urls), "NATS_REPLICAS": str(NODES)}
        self.manage("migrate", "--verbosity", "0")
        binary = NatsServer(self.stack.place, self.stack.secrets, 0).binary
        for number, port in enumerate(self.ports[:NODES]):
            command = [str(binary), "--config", str(self._configured(number))]
            self.supervisor.start(
                Process(node(number), command, lambda port=port: answers(port), self.stack.place.user("nats"))
            )
        self.manage("events_setup", patience=30)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> bool:
        """True if the server was up. SIGKILL takes its children too: RabbitMQ's own process is a script's child."""
        for kept in list(self.supervisor.running):
            if kept.process.name == name and kept.is_alive:
                if number == signal.SIGKILL:
                    os.killpg(kept.handle.pid, number)
                else:
                    kept.handle.send_signal(number)
                return True
        return False

    def whole(self) -> bool:
        return all(map(answers, self.ports[:NODES]))

    def _configured(self, number: int) -> Path:
        mine = self.stack.place.make("nats") / node(number)
        mine.mkdir(mode=0o700, exist_ok=True)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.ports[NODES:])
        path = mine / "nats.conf"
        path.write_text(
            f'server_name: {node(number)}\nhost: "127.0.0.1"\nport: {self.ports[number]}\n'
            f'jetstream {{ store_dir: "{mine}" }}\n'
            f'cluster {{ name: bench, host: "127.0.0.1", port: {self.ports[NODES + number]}, routes: [{routes}] }}\n',
            encoding="utf-8",
        )
        self.stack.place.give(mine, "nats")
        return path

    def manage(self, *command: str, patience: float = 0.0) -> None:
        """A command of the site; again and again for so many seconds, until it succeeds."""
        until = time.monotonic() + patience
        while True:
            done = subprocess.run([sys.executable, "manage.py", *command], cwd=env.ROOT, capture_output=True, text=True)
            if not done.returncode:
                return
            if time.monotonic() > until:
                raise RuntimeError(done.stderr[-2_000:])
            time.sleep(0.5)

    def _watch(self) -> None:
        while not self.supervisor.stopping.wait(0.1):
            self.supervisor.watch()


class Cluster(SharedServices):
    """With the relay and the consumers, each a process of its own."""

    def start(self) -> None:
        super().start()
        for part in ("relay", "consumers"):
            command = [sys.executable, str(env.ROOT / "manage.py"), "feedback_loop", "--only", part]
            self.supervisor.start(Process(part, command, cwd=str(env.ROOT)))


def node(number: int) -> str:
    return f"nats-{number}"


class Load:
    """Stores and publishes until its stop; ``committed`` and ``acknowledged`` are the ids that the database and the
    broker confirmed."""

    def __init__(self) -> None:
        from evaluation.events.models import EventPublisher
        from evaluation.events.subjects import RECEIVED
        from experiences.models import Agent
        from tests import factories

        self.agent: Agent = factories.AgentFactory(slug="agent-zero-main")
        EventPublisher.objects.create(organization=self.agent.organization)
        credential = factories.EventCredentialFactory(agent=None, organization=self.agent.organization)
        self.prefix = f"{RECEIVED}.{self.agent.organization_id}.{credential.pk}"
        self.committed: set[Any] = set()
        self.acknowledged: set[str] = set()
        self.stopping = threading.Event()
        work: list[Callable[[], None]] = [self._store, lambda: asyncio.run(self._publish())]
        self.threads = [threading.Thread(target=one) for one in work]

    def start(self) -> None:
        for one in self.threads:
            one.start()

    def stop(self) -> bool:
        """True if the site stored and published until now."""
        whole = all(one.is_alive() for one in self.threads)
        self.stopping.set()
        for one in self.threads:
            one.join()
        return whole

    def _store(self) -> None:
        from datetime import date

        from django.db import connection, transaction

        from agentcore_site.ids import uuid7
        from agentcore_site.lib.database import TROUBLE
        from experiences.rollouts.types import RolloutKey, Step, Trajectory
        from experiences.trajectories.storage import TrajectoryScope, partition_ensure, trajectories_write

        month = date.today().replace(day=1)
        partition_ensure(month)
        scope = TrajectoryScope(uuid7(), self.agent.organization_id, self.agent.pk, month)
        said = Step({"observation": "?"}, {"type": "answer", "parameters": {"text": "42"}}, {"success": True})
        number = 0
        while not self.stopping.wait(EVERY):
            number += 1
            keys = [RolloutKey(number, 0, sample) for sample in range(STORED_AT_ONCE)]
            try:
                with transaction.atomic():
                    trajectories_write(scope, [Trajectory(key, "6 times 7?", [said], reward=1.0) for key in keys])
            except TROUBLE:
                connection.close()  # whether it was committed is not known: the database will say
            else:
                self.committed |= {scope.id_of(key) for key in keys}
        connection.close()

    async def _publish(self) -> None:
        from evaluation.events.broker import connect

        client = await connect("publishers")
        await asyncio.gather(*(self._publisher(client) for _ in range(PUBLISHERS)))
        await client.close()

    async def _publisher(self, client: Any) -> None:
        """Publishes each until the stream has acknowledged it, as a careful program does."""
        from nats.errors import Error

        from evaluation.events.subjects import TRAJECTORY
        from tests.support.events import example

        js = client.jetstream(timeout=2)
        while not self.stopping.is_set():
            payload = example(TRAJECTORY) | {"trajectory_id": str(uuid4())}
            body, stored = json.dumps(payload).encode(), False
            while not stored and not self.stopping.is_set():
                try:
                    await js.publish(f"{self.prefix}.{TRAJECTORY}", body)
                    stored = True
                except (Error, OSError):
                    await asyncio.sleep(EVERY)
            if stored:
                self.acknowledged.add(payload["trajectory_id"])
            await asyncio.sleep(EVERY)


async def leader() -> str:
    """The name of the node that leads the stream; of any where none says so now."""
    from evaluation.events.broker import connect

    client = await connect("kills")
    try:
        info = await client.jetstream(timeout=3).stream_info(STREAM)
        found = info.cluster and info.cluster.leader
    except Exception:
        found = None
    finally:
        await client.close()
    return found or node(0)


def wreak(cluster: Cluster, rounds: int, chance: random.Random) -> Counter[str]:
    made: Counter[str] = Counter()
    for _ in range(rounds):
        victims = ["leader", "relay", "consumers", "postgres"]
        chance.shuffle(victims)
        for victim in victims:
            time.sleep(chance.uniform(*PAUSE))
            if victim == "leader":
                until(cluster.whole, 60)  # two of three must work, or the cluster has no say
            cluster.kill(asyncio.run(leader()) if victim == "leader" else victim)
            made[victim] += 1
    return made


def until(what: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.5)
    return False


def settled() -> bool:
    """Nothing waits in the outbox, or in a stream for our consumers."""
    from django.db import Error, connection

    from evaluation.events.models import OutboxEvent

    try:
        if OutboxEvent.objects.filter(settled_at=None).exists() or asyncio.run(_pending()):
            return False
        time.sleep(2)  # a new leader of a stream may not have counted yet
        return asyncio.run(_pending()) == 0
    except Error:
        connection.close()
        return False


async def _pending() -> int:
    from evaluation.events.broker import connect
    from evaluation.events.consuming import DURABLE
    from evaluation.events.inboxes import inboxes_there
    from evaluation.events.subjects import STREAMS

    client = await connect("bench")
    try:
        streams = [*STREAMS, *await inboxes_there(client.jetstream())]
        infos = [await client.jetstream().consumer_info(plan.name, DURABLE) for plan in streams]
        return sum((one.num_pending or 0) + (one.num_ack_pending or 0) for one in infos)
    except Exception:
        return 1
    finally:
        await client.close()


async def in_streams() -> Counter[str]:
    """The number of copies of each message of ours in the streams, by its id."""
    from nats.errors import TimeoutError as NothingThere
    from nats.js.api import AckPolicy, ConsumerConfig
    from nats.js.errors import APIError

    from evaluation.events.broker import connect
    from evaluation.events.stream_writer import MESSAGE_ID
    from evaluation.events.subjects import STREAMS

    client = await connect("bench")
    js, found = client.jetstream(), Counter[str]()
    for plan in STREAMS:
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, headers_only=True)
        left = (await js.stream_info(plan.name)).state.messages
        every = await js.pull_subscribe("", stream=plan.name, config=config)
        ends = time.monotonic() + READING_SECONDS
        while left > 0 and time.monotonic() < ends:
            try:
                messages = await every.fetch(min(500, left), timeout=2)
            except (TimeoutError, NothingThere, APIError):  # the stream may be without a leader for a moment
                continue
            left -= len(messages)
            found.update((one.headers or {}).get(MESSAGE_ID, "") for one in messages if one.subject.startswith("out."))
    await client.close()
    return found


def report(rounds: int, seed: int, load: Load, made: Counter[str], seconds: float) -> dict[str, Any]:
    from django.db.models import Count

    from evaluation.events.models import DeadLetter, OutboxEvent, ReceivedTrajectory
    from experiences.models import TrajectoryRecord

    stored = asyncio.run(in_streams())
    noted = {str(id) for id in OutboxEvent.objects.filter(withheld="").values_list("message_id", flat=True)}
    rows = TrajectoryRecord.objects.filter(organization_id=load.agent.organization_id)
    names = set(ReceivedTrajectory.objects.values_list("trajectory_id", flat=True))
    queries = rows.filter(purpose="received").values("scenario").annotate(n=Count("id"))
    return {
        "rounds": rounds,
        "seed": seed,
        "killed": dict(made),
        "events_committed": len(noted),
        "events_in_streams": len(stored),
        "missing": len(noted - set(stored)),
        "doubled": sum(stored.values()) - len(stored),
        "of_nothing": len(set(stored) - noted),
        "commits_lost": len(load.committed - set(rows.values_list("id", flat=True))),
        "acknowledged": len(load.acknowledged),
        "taken": len(names),
        "acknowledged_lost": len(load.acknowledged - names),
        "taken_twice": rows.filter(purpose="received").count() - len(queries),
        "rows_of_taken": len(queries),
        "dead_letters": DeadLetter.objects.count(),
        "seconds": round(seconds, 1),
    }


ZERO: Final = ("missing", "doubled", "of_nothing", "commits_lost", "acknowledged_lost", "taken_twice", "dead_letters")


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    folder = Path(tempfile.mkdtemp(prefix="agentcore-cluster-"))
    folder.chmod(0o711)
    os.environ |= {"DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "agentcore_site.settings", "LOG_LEVEL": "ERROR"}
    cluster = Cluster(folder)
    try:
        cluster.start()
        import django

        django.setup()
        row_scope.outside(row_scope.EVERYTHING)
        load, began = Load(), time.monotonic()
        load.start()
        made = wreak(cluster, rounds, random.Random(seed))
        loaded = load.stop()
        calm = until(settled, SETTLING_SECONDS)
        found = report(rounds, seed, load, made, time.monotonic() - began) | {"settled": calm, "loaded": loaded}
    finally:
        cluster.stack.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))
    return (
        0
        if calm and loaded and found["taken"] == found["rows_of_taken"] and not any(found[name] for name in ZERO)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
