"""A real NATS server for these tests: one for each process, whose streams are empty when a test begins."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from nats.aio.client import Client
from nats.js import JetStreamContext

from agentcore_site.embedded.nats import NatsServer
from agentcore_site.embedded.ports import free_port
from agentcore_site.embedded.supervisor import Process, Supervisor
from agentcore_site.lib.service_paths import place_for
from agentcore_site.tenancy.models import Organization
from evaluation.events.broker import connect, streams_ensure
from evaluation.events.models import EventPublisher


@contextmanager
def nats_running() -> Iterator[tuple[NatsServer, Supervisor]]:
    """A server with its files, started again by its supervisor's ``watch`` when it has ended."""
    with tempfile.TemporaryDirectory(prefix="agentcore-nats-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "secrets").mkdir()
        (folder / "log").mkdir()
        server = NatsServer(place_for(folder), folder / "secrets", free_port(0))
        server.prepare()
        supervisor = Supervisor(folder / "log", lambda message: None)
        user, stop = server.place.user(server.name), signal.SIGTERM
        supervisor.start(Process(server.name, server.command(), server.ready, user=user, stop_signal=stop))
        try:
            yield server, supervisor
        finally:
            supervisor.stop()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with nats_running() as (server, _):
        yield server


Spoken = Callable[[Client, JetStreamContext], Awaitable[Any]]


class Bus:
    """The server as a test uses it: ``speak`` runs a conversation of ours with it."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server

    def speak(self, conversation: Spoken) -> Any:
        async def within() -> Any:
            client = await connect("test")
            try:
                return await conversation(client, client.jetstream())
            finally:
                await client.close()

        # The database is asked in the test's own thread, and so in its transaction.
        return async_to_sync(within)()


@pytest.fixture
def bus(nats_server: NatsServer, settings: Any) -> Bus:
    settings.NATS_URL = nats_server.url()
    settings.NATS_ACCOUNTS_FILE, settings.NATS_PID_FILE = str(nats_server.accounts), str(nats_server.pid_file)
    made = Bus(nats_server)

    async def empty(client: Client, js: JetStreamContext) -> None:
        for stream in await js.streams_info():
            await js.delete_stream(stream.config.name or "")
        await streams_ensure(js)

    made.speak(empty)
    return made


@pytest.fixture
def published(acme: Organization) -> Organization:
    """Acme, which publishes its events."""
    EventPublisher.objects.create(organization=acme)
    return acme
