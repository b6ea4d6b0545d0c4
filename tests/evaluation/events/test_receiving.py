"""Received events become rows, once each; a refused one becomes a dead letter with its reason."""

from __future__ import annotations

import asyncio
import copy
import json
import secrets
import uuid
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

import nats
import pytest
from django.utils import timezone
from nats.aio.client import Client
from nats.js import JetStreamContext

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict, Forbidden
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.retention import rules
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from evaluation.events import consuming
from evaluation.events.account_sync import accounts_write
from evaluation.events.consuming import MOST_TRIES, EventConsumer
from evaluation.events.inboxes import InboxStreams, inboxes_there
from evaluation.events.intake.messages import RECEIVERS, Sender, StoredMessage, block_take
from evaluation.events.models import (
    DeadLetter,
    ErasedMessage,
    EventCredential,
    ReceivedReward,
    ReceivedTrajectory,
    TrainingRequest,
)
from evaluation.events.relay import Relay
from evaluation.events.services import (
    dead_letter_dismiss,
    dead_letter_retry,
    event_credential_create,
    event_credential_revoke,
)
from evaluation.events.stream_erasure import erase_once
from evaluation.events.subjects import REWARD, STREAMS, TRAJECTORY, InboxPlan
from experiences.models import TrajectoryRecord
from tests import factories
from tests.evaluation.events.conftest import Bus
from tests.support.bad_events import bad_events
from tests.support.events import example, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(adam: Any) -> Actor:
    return Actor(adam, interface="test")


@pytest.fixture
def agent(acme: Any, olivia: Any) -> Any:
    return factories.AgentFactory(organization=acme, created_by=olivia, slug="agent-zero-main")


class Publisher:
    """A program elsewhere: its own connection, with the credentials that it was given."""

    def __init__(self, bus: Bus, row: EventCredential, password: str) -> None:
        self.row = row
        self.url = f"nats://{row.user}:{password}@127.0.0.1:{bus.server.port}"

    async def client(self, errors: list[str] | None = None) -> Client:
        async def troubled(error: Exception) -> None:
            (errors if errors is not None else []).append(str(error))

        return await nats.connect(self.url, error_cb=troubled, allow_reconnect=False)


@pytest.fixture
def publisher(bus: Bus, boss: Actor, agent: Any) -> Publisher:
    return publishing(bus, boss, agent)


def publishing(bus: Bus, boss: Actor, agent: Any = None) -> Publisher:
    made = Publisher(bus, *event_credential_create(boss, name="a program", agent=agent))
    accounts_write()
    bus.speak(lambda client, js: InboxStreams(js).ensure())
    return made


def received(bus: Bus, publisher: Publisher, *messages: tuple[str, Any]) -> list[int]:
    """Publishes as the program, with the stream's acknowledgement, and lets the consumers take it all. Returns the
    sequences in the stream."""

    async def talk(ours: Client, js: JetStreamContext) -> list[int]:
        theirs = await connected(publisher)
        found = []
        for subject, payload in messages:
            body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            found.append((await theirs.jetstream().publish(subject, body)).seq)
        await theirs.close()
        await consumed(ours)
        return found

    return bus.speak(talk)


async def connected(publisher: Publisher) -> Client:
    """The server reads its accounts again a moment after the signal."""
    for _ in range(100):
        try:
            return await publisher.client()
        except nats.errors.Error:
            await asyncio.sleep(0.05)
    return await publisher.client()


async def consumed(client: Client) -> None:
    for plan in (*STREAMS, *await inboxes_there(client.jetstream())):
        consumer = EventConsumer(client, plan, asyncio.Event(), wait=0.05)
        while await consumer.once():
            pass


def changed(payload: dict[str, Any], **values: Any) -> dict[str, Any]:
    return copy.deepcopy(payload) | values


def test_a_foreign_agents_trajectory_and_reward_become_a_row(bus: Bus, publisher: Publisher, agent: Any) -> None:
    given, paid = example(TRAJECTORY), example(REWARD)
    paid["trajectory_id"] = given["trajectory_id"]
    received(bus, publisher, (TRAJECTORY, given), (REWARD, paid))
    row = TrajectoryRecord.objects.get(agent_id=agent.pk)
    assert (row.purpose, row.query, row.n_steps) == ("received", given["task_context"]["instructions"], 1)
    assert (row.tokens, row.cost_micros, row.model) == (5000, 25_000, "qwen2.5-32b-instruct")
    assert row.reward == 0.8625
    assert row.duration_ms == 330_000
    [step] = row.steps
    assert step["action"]["tool"] == "code_exe"
    assert step["result"] == {"success": True, "output": "tool execution result", "error": None}
    reward = ReceivedReward.objects.get()
    assert reward.applied and reward.components["code_quality"]["source"] == "linter"
    assert not DeadLetter.objects.exists()


def test_repeated_or_reordered_messages_make_one_row(bus: Bus, publisher: Publisher) -> None:
    given, paid = example(TRAJECTORY), example(REWARD)
    paid["trajectory_id"] = given["trajectory_id"]
    received(bus, publisher, (REWARD, paid))
    assert ReceivedReward.objects.get().record_id is None
    received(bus, publisher, (TRAJECTORY, given), (TRAJECTORY, given), (REWARD, paid))
    row = TrajectoryRecord.objects.get(purpose="received", reward=0.8625)
    assert row.components["task_completion"] == 0.9
    assert ReceivedReward.objects.get(applied=True).record_id == row.pk
    assert ReceivedTrajectory.objects.count() == 1
    assert not DeadLetter.objects.exists()


def test_each_bad_message_is_a_dead_letter_with_its_reason(
    bus: Bus, boss: Actor, publisher: Publisher, agent: Any, elsewhere: Any
) -> None:
    given = example(TRAJECTORY)
    factories.AgentFactory(organization=elsewhere, slug="of-others")
    factories.AgentFactory(organization=agent.organization, slug="neighbour")
    silent = factories.AgentFactory(organization=agent.organization, slug="silent", collects=False)
    bad = {
        b"{": "unreadable",
        json.dumps(changed(given, session_id="\x00")).encode(): "unreadable",
        json.dumps(changed(given, turns=[])).encode(): "schema",
        json.dumps(changed(given, start_timestamp="yesterday")).encode(): "schema",
        json.dumps(changed(given, agent_id="of-others")).encode(): "unknown_agent",
        json.dumps(changed(given, agent_id="neighbour")).encode(): "wrong_agent",
    }
    received(bus, publisher, *((TRAJECTORY, body) for body in bad))
    found = [one.reason for one in DeadLetter.objects.order_by("sequence")]
    assert found == list(bad.values())
    assert not TrajectoryRecord.objects.filter(purpose="received").exists()
    # Another content under the same id is not taken for it.
    received(bus, publisher, (TRAJECTORY, given), (TRAJECTORY, changed(given, session_id="another")))
    assert DeadLetter.objects.latest("sequence").reason == "conflict"
    # What may not be recorded is not kept as a dead letter either.
    service = publishing(bus, boss)
    received(bus, service, (TRAJECTORY, changed(given, agent_id=silent.slug, trajectory_id="other")))
    last = DeadLetter.objects.latest("sequence")
    assert (last.reason, last.payload) == ("not_recorded", "")
    # All of them are in the stream too, for other programs; no consumer stopped.
    letters = bus.speak(lambda client, js: stored(js, "RL_DEAD_LETTERS"))
    assert [one["reason"] for _, one in letters] == [*bad.values(), "conflict", "not_recorded"]
    assert {subject for subject, _ in letters} == {f"agent.rl.dlq.{InboxPlan(agent.organization_id).name}"}


def test_a_dead_letter_is_taken_again_once_its_reason_is_gone(
    bus: Bus, boss: Actor, dan: Any, publisher: Publisher, agent: Any
) -> None:
    given = changed(example(TRAJECTORY), agent_id="of-tomorrow")
    service = publishing(bus, boss)
    received(bus, service, (TRAJECTORY, given))
    letter = DeadLetter.objects.get()
    with pytest.raises(Forbidden):
        dead_letter_retry(Actor(dan), letter)
    with pytest.raises(Conflict, match="refused again: No agent of-tomorrow"):
        dead_letter_retry(boss, letter)
    made = factories.AgentFactory(organization=agent.organization, slug="of-tomorrow")
    letter = DeadLetter.objects.get()
    dead_letter_retry(boss, letter)
    assert TrajectoryRecord.objects.get(agent_id=made.pk).purpose == "received"
    assert DeadLetter.objects.get().outcome == "taken"
    for again in (dead_letter_retry, dead_letter_dismiss):
        with pytest.raises(Conflict, match="taken already"):
            again(boss, DeadLetter.objects.get())


def test_a_stranger_can_publish_nothing_and_a_publisher_only_what_is_its_own(
    bus: Bus, boss: Actor, publisher: Publisher, elsewhere: Any
) -> None:
    errors: list[str] = []

    async def talk(ours: Client, js: JetStreamContext) -> None:
        for url in (f"nats://127.0.0.1:{bus.server.port}", publisher.url.replace(":p-", ":p-x").replace("@", "x@")):
            with pytest.raises(nats.errors.Error):
                await nats.connect(url, allow_reconnect=False, error_cb=_silent)
        theirs = await connected(publisher)
        await theirs.close()
        theirs = await publisher.client(errors)
        forged = f"received.{elsewhere.pk}.{publisher.row.pk}.{TRAJECTORY}"
        for subject in (forged, "agent.rl.training.status.v1", "agent.rl.model.deployed.v1", "$JS.API.STREAM.NAMES"):
            await theirs.publish(subject, b"{}")
        await theirs.flush()
        for _ in range(100):  # the server's answers to what it dropped
            if len(errors) == 4:
                break
            await asyncio.sleep(0.05)
        await theirs.close()
        assert {one.config.name: one.state.messages for one in await js.streams_info() if one.state.messages} == {}

    bus.speak(talk)
    assert len(errors) == 4 and all("permissions violation" in one for one in errors)


async def _silent(error: Exception) -> None:
    """The server says why; the exception is enough."""


def test_a_revoked_publisher_is_out_within_a_moment(bus: Bus, boss: Actor, publisher: Publisher) -> None:
    received(bus, publisher, (TRAJECTORY, example(TRAJECTORY)))
    event_credential_revoke(boss, publisher.row)
    assert accounts_write()
    assert not accounts_write()

    async def talk(ours: Client, js: JetStreamContext) -> None:
        for _ in range(100):
            try:
                await (await publisher.client()).close()
            except nats.errors.Error:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it may still connect")

    bus.speak(talk)


def test_members_of_the_organisation_receive_status_by_the_plain_subject(
    bus: Bus, publisher: Publisher, acme: Any, elsewhere: Any
) -> None:
    received: list[bytes] = []

    async def talk(ours: Client, js: JetStreamContext) -> None:
        theirs = await connected(publisher)

        async def receive(message: Any) -> None:
            received.append(message.data)

        await theirs.subscribe("agent.rl.training.status.v1", cb=receive)
        await theirs.flush()
        for organization in (elsewhere, acme):
            await ours.publish(f"out.{organization.pk}.agent.rl.training.status.v1", organization.slug.encode())
        await ours.flush()
        async with asyncio.timeout(10):  # acme's was published last: a message of the others would be here before
            while b"acme" not in received:
                await asyncio.sleep(0.02)
        await theirs.close()

    bus.speak(talk)
    assert received == [b"acme"]


def test_the_designs_commands_work_word_for_word(bus: Bus, acme: Any, agent: Any, settings: Any) -> None:
    """By the plain subjects, on a server with one account: ``nats pub`` sends what follows it unchanged."""
    settings.NATS_ORGANIZATION = acme.slug
    reward = b"""{
  "reward_id": "test-123",
  "trajectory_id": "traj-456",
  "session_id": "sess-789",
  "timestamp": "2025-12-08T12:00:00Z",
  "reward_components": {
    "task_completion": {"score": 1.0, "weight": 0.4, "source": "automated"},
    "efficiency": {"score": 0.8, "weight": 0.2, "source": "automated"},
    "user_feedback": {"score": 1.0, "weight": 0.4, "source": "human"}
  },
  "total_reward": 0.92
}"""

    async def talk(ours: Client, js: JetStreamContext) -> None:
        await ours.publish(REWARD, reward)
        await ours.flush()
        await consumed(ours)

    bus.speak(talk)
    assert ReceivedReward.objects.get(reward_id="test-123").total == 0.92
    assert not DeadLetter.objects.exists()


def test_erased_data_is_deleted_from_the_streams(
    bus: Bus, boss: Actor, published: Any, publisher: Publisher, agent: Any
) -> None:
    """The received events, the events sent for them, the rewards and the refusals; nothing else."""
    given = example(TRAJECTORY)
    of_jane = changed(given, trajectory_id="t-1", task_context={"instructions": "Call Jane Quizzlebottom"})
    rewards = [changed(example(REWARD), trajectory_id=name, reward_id=f"of {name}") for name in ("t-1", "t-2")]
    refused = changed(of_jane, agent_id="Jane Quizzlebottom")
    received(
        bus,
        publisher,
        (TRAJECTORY, of_jane),
        (TRAJECTORY, changed(given, trajectory_id="t-2")),
        (TRAJECTORY, refused),
        *((REWARD, one) for one in rewards),
    )

    async def kept(ours: Client, js: JetStreamContext) -> list[str]:
        relay = Relay(ours, asyncio.Event())
        while await relay.once():
            pass
        while await erase_once(js):
            pass
        found = await stored(js, "RL_TRAJECTORIES") + await stored(js, "RL_REWARDS")
        return sorted(f"{subject.partition('.')[0]} {payload['trajectory_id']}" for subject, payload in found)

    assert bus.speak(kept) == ["out t-1", "out t-1", "out t-2", "out t-2"]  # those received left once they were taken
    subject_erase(boss, ["Quizzlebottom"])
    assert bus.speak(kept) == ["out t-2", "out t-2"]
    assert not ErasedMessage.objects.exists()


def test_a_message_that_is_another_by_now_is_not_deleted(bus: Bus, acme: Any) -> None:
    """A stream that was deleted and made again counts from one again."""
    sequence = bus.speak(lambda client, js: js.publish(f"out.{acme.pk}.{TRAJECTORY}", b"{}")).seq
    ErasedMessage.objects.create(stream="RL_TRAJECTORIES", sequence=sequence, mark="of another")
    ErasedMessage.objects.create(stream="RL_TRAJECTORIES", sequence=sequence + 1, mark="of none")
    bus.speak(lambda client, js: erase_once(js))
    assert len(bus.speak(lambda client, js: stored(js, "RL_TRAJECTORIES"))) == 1
    assert not ErasedMessage.objects.exists()


def test_a_fault_of_ours_costs_no_other_message_of_its_block(
    acme: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sender: Sender, payload: Any, stamp: Any) -> None:
        ReceivedTrajectory.objects.create(organization=acme, agent=agent, trajectory_id=payload["trajectory_id"])
        if payload["trajectory_id"] == "t-1":
            raise RuntimeError("a fault")

    monkeypatch.setitem(RECEIVERS, TRAJECTORY, broken)
    credential = factories.EventCredentialFactory(agent=agent)
    subject = f"received.{acme.pk}.{credential.pk}.{TRAJECTORY}"
    bodies = [json.dumps(changed(example(TRAJECTORY), trajectory_id=f"t-{n}")).encode() for n in range(3)]
    block = [StoredMessage(subject, body, "RL_TRAJECTORIES", n, timezone.now()) for n, body in enumerate(bodies)]
    assert [str(outcome) for outcome in block_take(block)] == ["None", "a fault", "None"]
    assert set(ReceivedTrajectory.objects.values_list("trajectory_id", flat=True)) == {"t-0", "t-2"}


def test_a_message_waits_for_its_key_without_a_limit(
    bus: Bus, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, tried = RECEIVERS[TRAJECTORY], []

    def keyless(sender: Sender, payload: Any, stamp: Any) -> None:
        tried.append(stamp)
        if len(tried) <= MOST_TRIES + 3:
            raise KeyUnavailable("The key server does not answer.")
        taken(sender, payload, stamp)

    monkeypatch.setitem(RECEIVERS, TRAJECTORY, keyless)
    monkeypatch.setattr(consuming, "BACKOFF", (0.01,))

    async def talk(ours: Client, js: JetStreamContext) -> None:
        theirs = await connected(publisher)
        await theirs.jetstream().publish(TRAJECTORY, json.dumps(example(TRAJECTORY)).encode())
        await theirs.close()
        [plan] = await inboxes_there(js)
        consumer = EventConsumer(ours, plan, asyncio.Event(), wait=0.2)
        for _ in range(300):
            await consumer.once()
            if len(tried) > MOST_TRIES + 3:
                break

    bus.speak(talk)
    assert TrajectoryRecord.objects.filter(purpose="received").count() == 1
    assert not DeadLetter.objects.exists()


def test_while_the_disk_is_nearly_full_the_streams_keep_what_comes(
    bus: Bus, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(consuming, "DISK_SECONDS", 0.01)
    room, settings.DISK_MINIMUM_FREE_MB = settings.DISK_MINIMUM_FREE_MB, 10**9
    received(bus, publisher, (TRAJECTORY, example(TRAJECTORY)))
    assert not TrajectoryRecord.objects.exists()
    settings.DISK_MINIMUM_FREE_MB = room
    bus.speak(lambda ours, js: consumed(ours))
    assert TrajectoryRecord.objects.filter(purpose="received").count() == 1


def test_of_bad_events_each_is_a_dead_letter_or_harmless(
    bus: Bus, boss: Actor, publisher: Publisher, acme: Any, elsewhere: Any
) -> None:
    """A sample; the bench has a hundred thousand (``make bench ARGS=bad_events``)."""
    factories.AgentFactory(organization=elsewhere, slug="of-others")
    factories.AgentFactory(organization=acme, slug="neighbour")
    sent = list(bad_events(150, seed=secrets.randbelow(2**32)))
    service = publishing(bus, boss)
    received(bus, service, *sent)

    async def pending(client: Client, js: JetStreamContext) -> int:
        infos = [await js.consumer_info(one.name, "agentcore") for one in (*STREAMS, *await inboxes_there(js))]
        return sum((one.num_pending or 0) + (one.num_ack_pending or 0) for one in infos)

    assert bus.speak(pending) == 0
    letters = DeadLetter.objects.all()
    assert letters.count() > 30
    assert list(letters.filter(reason="failed").values("detail", "payload")) == []
    rows = TrajectoryRecord.objects.filter(purpose="received")
    assert rows.count() == ReceivedTrajectory.objects.count()
    assert set(rows.values_list("organization_id", flat=True)) <= {acme.pk}
    # A good one is taken after all of them.
    received(bus, publisher, (TRAJECTORY, example(TRAJECTORY)))
    assert rows.count() == ReceivedTrajectory.objects.count() > 0


def test_received_rewards_dead_letters_and_requests_age_as_their_rules_say(acme: Any, agent: Any) -> None:
    now = timezone.now()
    for days in (29, 31):
        ReceivedReward.objects.create(
            organization=acme, reward_id=f"{days}", trajectory_id="t", digest="", total=1.0,
            received_at=now - timedelta(days=days),
        )  # fmt: skip
        factories.DeadLetterFactory(organization=acme, sequence=days, created_at=now - timedelta(days=days))
    for name, status, days in (("old", "completed", 91), ("new", "cancelled", 89), ("at work", "running", 400)):
        job = Job.objects.create(
            organization=acme, kind="external_training", status=status, finished_at=now - timedelta(days=days)
        )
        TrainingRequest.objects.create(
            organization=acme,
            training_job_id=name,
            digest="",
            algorithm="ppo",
            base_model="m",
            mode="elsewhere",
            job=job,
        )
    aged = {name: rules.get(name).age for name in ("received rewards", "dead letters", "requests to train")}
    assert {name: age() for name, age in aged.items() if age is not None} == dict.fromkeys(aged, 1)
    assert ReceivedReward.objects.get().reward_id == "29" and DeadLetter.objects.get().sequence == 29
    assert set(TrainingRequest.objects.values_list("training_job_id", flat=True)) == {"new", "at work"}


@pytest.mark.parametrize(("dead", "rests"), [(3, True), (2, False), (0, False)])
async def test_who_sends_nothing_readable_leaves_the_processor_to_others(
    dead: int, rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four fifths of the time where all of a block becomes dead letters."""
    waited: list[float] = []

    async def wait(_: asyncio.Event, seconds: float) -> None:
        waited.append(seconds)

    async def took(*_: object, found: Any = None, **__: object) -> Any:
        await asyncio.sleep(0.02)
        return found

    monkeypatch.setattr(consuming, "pause", wait)
    monkeypatch.setattr(consuming.disk, "shortage", lambda: "")
    consumer = EventConsumer(mock.Mock(), InboxPlan(uuid.uuid4()), asyncio.Event())
    messages = [mock.Mock(headers={}, **{"metadata.num_delivered": 1}) for _ in range(3)]
    consumer._subscription = mock.Mock(fetch=partial(took, found=messages))
    monkeypatch.setattr(consumer, "_outcomes", partial(took, found=[]))
    monkeypatch.setattr(consumer, "_settle", partial(took, found=dead))
    assert await consumer.once() == 3
    assert len(waited) == rests and all(0.16 <= one <= 1 for one in waited)
