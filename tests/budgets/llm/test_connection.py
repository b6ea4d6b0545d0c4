"""The connection underneath: kept, dropped and secured as it should be, on real sockets."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import create_server, socket
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agentcore_site.outbound import OutboundClient
from budgets.llm.errors import ConnectionLost, Timeout
from budgets.llm.types import Message
from budgets.meter_port import FreeMeter
from tests.support.llm_acts import act
from tests.support.llm_client import SAY, ask, client, key
from tests.support.llm_server import ModelServer

ASKED = b'{"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}'


async def said(one, text: str) -> str:
    return (await one.complete([Message("user", text)], max_tokens=50, key=key())).text


def sockets(server: ModelServer) -> int:
    """Over how many connections the requests came."""
    return len({id(call.writer) for call in server.requests})


async def test_one_connection_carries_many_calls(server: ModelServer) -> None:
    async with client(server) as one:
        for n in range(5):
            assert await said(one, str(n)) == f"You said: {n}"
    assert len(server.requests) == 5 and sockets(server) == 1


async def test_a_connection_that_was_idle_for_long_is_not_trusted(server: ModelServer) -> None:
    async with OutboundClient(idle_s=0.1) as one:
        target = one.target(f"{server.base_url}/chat/completions")
        for wait in (0.0, 0.0, 0.4):
            await asyncio.sleep(wait)
            async with await one.send("POST", target, headers={}, body=ASKED) as response:
                await response.read(10_000)
    first, second, third = (call.writer for call in server.requests)
    assert first is second is not third


@pytest.mark.parametrize("options", [{}, {"later": 0.02}], ids=["at once", "later"])
async def test_an_unrequested_answer_answers_no_other_call(server: ModelServer, options: dict) -> None:
    server.will(act("answer_twice", **options))
    async with client(server) as one:
        assert await said(one, "first") == "You said: first"
        await asyncio.sleep(0.2)  # an answer that arrives after the next request was sent can't be assigned
        assert await said(one, "second") == "You said: second"
    assert sockets(server) == 2


async def test_a_connection_that_the_server_closed_is_opened_again(server: ModelServer, meter: FreeMeter) -> None:
    server.will("answer_and_close", "answer")
    async with client(server, meter) as one:
        assert await said(one, "first") == "You said: first"
        assert await said(one, "second") == "You said: second"
    assert sockets(server) == 2 and meter.spent_micros == server.owed.micros


async def test_a_connection_that_the_server_left_silently_is_opened_again(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("answer_and_leave", "answer")
    async with client(server, meter) as one:
        await said(one, "first")
        while not server.requests[0].writer.is_closing():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the end of the connection travels to this side
        assert await said(one, "second") == "You said: second"
    assert meter.spent_micros == server.owed.micros


@pytest.mark.parametrize("stream", [False, True])
async def test_client_hangs_up_on_a_server_that_is_too_slow(server: ModelServer, stream: bool) -> None:
    """So that a provider can stop working; whether it stops billing is its own affair."""
    server.will("hang")
    async with client(server, timeout_s=1) as one:
        with pytest.raises(Timeout):
            await one.complete(SAY, max_tokens=5, key=key(), stream=stream)
        async with asyncio.timeout(5):
            while not server.requests[0].gone:
                await asyncio.sleep(0.01)


async def test_a_failed_answer_leaves_nothing_behind_for_the_next_call(server: ModelServer) -> None:
    server.will(act("big", size=2**21), "cut_stream", "reset", "hang")
    async with client(server, timeout_s=2) as one:
        for _ in range(4):
            with pytest.raises(Exception, match=r"larger|cut|failed|No answer"):
                await said(one, "lost")
        assert await said(one, "next") == "You said: next"
    assert sockets(server) == 5


async def test_client_passes_over_informational_answers(server: ModelServer) -> None:
    server.will("informational")
    assert (await ask(client(server))).text.startswith("You said")


async def test_an_answer_that_is_no_http_is_a_lost_connection_and_costs_the_hold(
    server: ModelServer, meter: FreeMeter
) -> None:
    server.will("not_http")
    with pytest.raises(ConnectionLost, match="does not speak HTTP"):
        await ask(client(server, meter))
    assert meter.spent_micros == sum(meter.holds_micros.values()) > 0


@pytest.fixture
def deaf(server: ModelServer) -> Iterator[ModelServer]:
    """A server whose place a listener with a full queue has taken: no process accepts."""
    with create_server(("127.0.0.1", 0), backlog=0) as listener:
        callers = [socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        before, server.port = server.port, listener.getsockname()[1]
        yield server
        server.port = before
        for caller in callers:
            caller.close()


async def test_a_host_that_does_not_pick_up_is_a_timeout_that_costs_nothing(
    deaf: ModelServer, meter: FreeMeter
) -> None:
    with pytest.raises(Timeout):
        await ask(client(deaf, meter, connect_s=0.2))
    assert [(bill.amount_micros, bill.source) for bill in meter.bills.values()] == [(0, "none")]


async def test_a_call_that_is_cancelled_before_sending_costs_nothing(deaf: ModelServer, meter: FreeMeter) -> None:
    async with client(deaf, meter) as one:
        task = asyncio.create_task(said(one, "hello"))
        await asyncio.sleep(0.1)
        assert meter.reserved_micros > 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [(bill.amount_micros, bill.source) for bill in meter.bills.values()] == [(0, "none")]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, in one file."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "model server")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    signed = builder.add_extension(address, critical=False).sign(private, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = tmp_path / "certificate.pem"
    secret = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(signed.public_bytes(pem) + secret)
    return path


@pytest.fixture
def secured(certificate: Path) -> Callable[[], ModelServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return lambda: ModelServer(tls=context)


async def test_client_speaks_tls_to_a_server_whose_certificate_the_site_trusts(
    secured, certificate: Path, settings: Any
) -> None:
    settings.OUTBOUND_CA_FILE = str(certificate)
    with secured() as server:
        pieces: list[str] = []
        async with client(server) as one:
            for _ in range(2):
                done = await one.complete(SAY, max_tokens=50, key=key(), on_delta=pieces.append)
    assert done.text.startswith("You said") and "".join(pieces) == 2 * done.text
    assert sockets(server) == 1


async def test_client_sends_no_key_to_a_server_with_an_untrusted_certificate(secured, meter: FreeMeter) -> None:
    with secured() as server, pytest.raises(ConnectionLost, match="certificate is not trusted"):
        await ask(client(server, meter))
    assert not server.requests
    assert [(bill.amount_micros, bill.source) for bill in meter.bills.values()] == [(0, "none")]


def test_client_works_on_the_web_servers_event_loop_too() -> None:
    async def twice(server: ModelServer) -> list[str]:
        async with client(server) as one:
            return [(await ask(one)).text for _ in range(2)]

    with ModelServer(brain=lambda _: "hello") as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(twice(server)) == ["hello", "hello"]
