"""Streams of organisations: who floods is refused, and no neighbour loses a message, an id or its place."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import nats
import pytest
from django.utils import timezone
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError, ServerError, ServiceUnavailableError

from agentcore_site.tenancy.actors import Actor
from evaluation.events import accounts, inbox_consumers, inboxes, metrics
from evaluation.events.broker import streams_ensure
from evaluation.events.inbox_consumers import InboxConsumers
from evaluation.events.inboxes import InboxStreams, inboxes_there
from evaluation.events.intake.messages import StoredMessage, block_take
from evaluation.events.models import DeadLetter
from evaluation.events.services import event_credential_revoke
from evaluation.events.subjects import STREAMS, TRAJECTORY, InboxPlan
from experiences.models import TrajectoryRecord
from tests import factories
from tests.evaluation.events.conftest import Bus
from tests.evaluation.events.test_receiving import Publisher, connected, consumed, publishing
from tests.support.events import example

pytestmark = pytest.mark.django_db


@pytest.fixture
def noisy(bus: Bus, adam: Any, acme: Any, olivia: Any) -> Publisher:
    agent = factories.AgentFactory(organization=acme, created_by=olivia, slug="agent-zero-main")
    return publishing(bus, Actor(adam, interface="test"), agent)


@pytest.fixture
def quiet(bus: Bus, elsewhere: Any) -> Publisher:
    """A publisher of another organisation."""
    owner = factories.MembershipFactory(organization=elsewhere, role="admin").user
    agent = factories.AgentFactory(organization=elsewhere, created_by=owner, slug="agent-zero-main")
    return publishing(bus, Actor(owner, interface="test"), agent)


def trajectory(n: int = 0) -> bytes:
    return json.dumps(example(TRAJECTORY) | {"trajectory_id": f"t-{n}"}).encode()


class Refusing:
    """A JetStream whose answer to each change of a stream is an error of the server's."""

    def __init__(self, error: APIError) -> None:
        self.error, self.changes = error, 0

    async def update_stream(self, _: StreamConfig) -> None:
        self.changes += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (ServiceUnavailableError(code=503, err_code=10_008, description="temporarily unavailable"), 2),
        (ServiceUnavailableError(), 2),  # no server answers
        (ServiceUnavailableError(code=503, err_code=10_023, description="insufficient resources"), 1),
        (ServerError(code=500, err_code=10_047, description="insufficient storage"), 1),
    ],
)
async def test_only_a_server_without_room_is_asked_again_a_minute_later(
    error: APIError, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one() -> set[uuid.UUID]:
        return {uuid.UUID(int=7)}

    monkeypatch.setattr(inboxes, "lasting", lambda _: one)
    js: Any = Refusing(error)
    streams = InboxStreams(js)
    for _ in range(2):
        await streams.ensure()
    assert js.changes == changes and not streams.made


def test_a_flood_is_refused_and_its_neighbour_loses_nothing(
    bus: Bus, noisy: Publisher, quiet: Publisher, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(inboxes, "MOST_MESSAGES", 300)
    settings.DEAD_LETTERS_KEPT = 100

    async def talk(ours: Client, js: JetStreamContext) -> str:
        await InboxStreams(js).ensure()  # with the smaller limit
        flooding, calm = await connected(noisy), await connected(quiet)
        for n in range(2):
            await calm.jetstream().publish(TRAJECTORY, trajectory(n))
        for _ in range(2_000):
            await flooding.publish(TRAJECTORY, b"flood")
        await flooding.flush()
        for n in range(2, 5):
            await calm.jetstream().publish(TRAJECTORY, trajectory(n))
        with pytest.raises(APIError) as refused:
            await flooding.jetstream().publish(TRAJECTORY, b"flood")
        there = {plan.organization_id: one.state.messages for plan, one in (await inboxes_there(js)).items()}
        assert there == {noisy.row.organization_id: 300, quiet.row.organization_id: 5}
        await consumed(ours)
        await flooding.jetstream().publish(TRAJECTORY, trajectory())  # once its messages are taken there is room
        await consumed(ours)
        await flooding.close()
        await calm.close()
        return str(refused.value.description)

    assert bus.speak(talk) == "maximum messages exceeded"
    rows = TrajectoryRecord.objects.filter(purpose="received")
    assert rows.filter(organization_id=quiet.row.organization_id).count() == 5
    assert rows.filter(organization_id=noisy.row.organization_id).count() == 1
    assert 100 <= DeadLetter.objects.filter(organization_id=noisy.row.organization_id).count() <= 105


def test_an_id_is_compared_within_its_organisation_only(bus: Bus, noisy: Publisher, quiet: Publisher) -> None:
    async def talk(ours: Client, js: JetStreamContext) -> list[bool]:
        found = []
        for publisher in (noisy, noisy, quiet):
            theirs = await connected(publisher)
            stored = await theirs.jetstream().publish(TRAJECTORY, trajectory(), headers={"Nats-Msg-Id": "x"})
            found.append(bool(stored.duplicate))
            await theirs.close()
        await consumed(ours)
        return found

    assert bus.speak(talk) == [False, True, False]
    assert TrajectoryRecord.objects.filter(purpose="received").count() == 2  # one of each


def test_messages_in_the_shared_streams_of_an_earlier_release_are_received(
    bus: Bus, noisy: Publisher, settings: Any
) -> None:
    """Also those beyond the limit of bytes that the streams have now: it comes once they are read."""
    [plan] = [one for one in STREAMS if one.name == "RL_TRAJECTORIES"]
    subject = f"in.{noisy.row.organization_id}.{noisy.row.pk}.{TRAJECTORY}"

    async def talk(ours: Client, js: JetStreamContext) -> list[int]:
        await js.delete_stream(plan.name)
        await js.add_stream(
            StreamConfig(name=plan.name, subjects=plan.subjects, max_age=plan.max_age, storage=StorageType.FILE)
        )
        for n in range(3):
            await js.publish(subject, trajectory(n))
        limits = []
        for _ in range(2):
            await streams_ensure(js)
            limits.append((await js.stream_info(plan.name)).config.max_bytes or 0)
            await consumed(ours)
        return limits

    settings.NATS_STORE_MB = 0.001
    before, after = bus.speak(talk)
    assert TrajectoryRecord.objects.filter(purpose="received").count() == 3
    assert before > after == int(0.001 * 2**20 * plan.share)


def test_all_streams_together_are_within_the_room_of_the_server(
    bus: Bus, noisy: Publisher, quiet: Publisher, settings: Any
) -> None:
    async def talk(ours: Client, js: JetStreamContext) -> list[int]:
        return [one.config.max_bytes or 0 for one in await js.streams_info()]

    limits = bus.speak(talk)
    room = bus.server.store_mb() * 2**20
    assert len(limits) == len(STREAMS) + 1 + 2 and min(limits) > 0 and sum(limits) <= room
    assert f"max_file_store: {bus.server.store_mb()}MB" in (bus.server.folder / "nats.conf").read_text()


def test_an_organisation_without_room_for_its_stream_is_named(
    bus: Bus, noisy: Publisher, quiet: Publisher, settings: Any, caplog: Any
) -> None:
    settings.NATS_STORE_MB = settings.NATS_INBOX_MB = 10**8

    async def talk(ours: Client, js: JetStreamContext) -> None:
        for plan in await inboxes_there(js):
            await js.delete_stream(plan.name)
        await InboxStreams(js).ensure()

    bus.speak(talk)
    assert metrics.inboxes_refused._value.get() == 2
    assert f"organisation {quiet.row.organization_id} can publish no events" in caplog.text
    settings.NATS_STORE_MB, settings.NATS_INBOX_MB = 1_024, 16
    bus.speak(lambda ours, js: InboxStreams(js).ensure())
    assert metrics.inboxes_refused._value.get() == 0


def test_a_stream_without_publishers_is_read_to_its_end_and_deleted(
    bus: Bus, noisy: Publisher, quiet: Publisher, adam: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_consumers, "REVIEW_SECONDS", 0.0)

    async def send(ours: Client, js: JetStreamContext) -> None:
        theirs = await connected(noisy)
        await theirs.jetstream().publish(TRAJECTORY, trajectory())
        await theirs.close()

    async def talk(ours: Client, js: JetStreamContext) -> set[InboxPlan]:
        stopping = asyncio.Event()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            consumers = InboxConsumers(ours, InboxStreams(js), group, stopping)
            running = group.create_task(consumers.run())
            while len(there := await inboxes_there(js)) > 1:
                await asyncio.sleep(0.05)
            stopping.set()
            await running
        return set(there)

    monkeypatch.setattr(inbox_consumers, "POLL_SECONDS", 0.05)
    bus.speak(send)
    event_credential_revoke(Actor(adam, interface="test"), noisy.row)
    assert bus.speak(talk) == {InboxPlan(quiet.row.organization_id)}
    assert TrajectoryRecord.objects.filter(purpose="received").count() == 1  # what came before the end counts


def test_a_publisher_has_so_many_connections(bus: Bus, adam: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "CONNECTIONS", 2)
    publisher = publishing(bus, Actor(adam, interface="test"))

    async def talk(ours: Client, js: JetStreamContext) -> None:
        first, second = await connected(publisher), await publisher.client()
        with pytest.raises(nats.errors.Error):
            await publisher.client()
        await first.close()
        await second.close()

    bus.speak(talk)


def test_dead_letters_of_an_organisation_are_bounded_by_number_and_bytes(
    acme: Any, elsewhere: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DEAD_LETTERS_KEPT = 5
    agents = {one.pk: factories.EventCredentialFactory(agent=None, organization=one) for one in (acme, elsewhere)}

    def bad(organization: Any, sequence: int, body: bytes = b"bad") -> StoredMessage:
        subject = f"received.{organization.pk}.{agents[organization.pk].pk}.{TRAJECTORY}"
        return StoredMessage(subject, body, InboxPlan(organization.pk).name, sequence, timezone.now())

    before = metrics.dropped._value.get()
    block_take([bad(elsewhere, 1), *(bad(acme, n) for n in range(20))])
    assert DeadLetter.objects.filter(organization=elsewhere).count() == 1
    assert set(DeadLetter.objects.filter(organization=acme).values_list("sequence", flat=True)) == set(range(15, 20))
    assert metrics.dropped._value.get() == before + 15
    monkeypatch.setattr("evaluation.events.intake.messages.BYTES_EACH", 200)
    block_take([bad(acme, n, b"x" * 400) for n in range(20, 24)])
    assert set(DeadLetter.objects.filter(organization=acme).values_list("sequence", flat=True)) == {22, 23}
    unknown = [StoredMessage("nobody's", b"", "RL_REWARDS", n, timezone.now()) for n in range(9)]
    for message in unknown:
        block_take([message])
    assert DeadLetter.objects.filter(organization=None).count() == 5
