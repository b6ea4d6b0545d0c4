"""Web processes and processes of the gateway behind one address: each request reaches its kind, and none is lost."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from agentcore_site.embedded import ports
from agentcore_site.embedded.management.commands.up import Command
from agentcore_site.embedded.supervisor import Supervisor
from agentcore_site.lib.connection_handover import LONGEST, ConnectionHandover, channel_ends
from evaluation.serving.gateway.application import INTERFACES, PREFIX
from tests.performance.memory import signed_in
from tests.support.up import Up

OURS = "agentcore_site.asgi:application"


class Site:
    """Processes as `up` starts them, around an application that says which process answered."""

    def __init__(self, folder: Path, settings: Any, *, web: int = 1, gateway: int = 1) -> None:
        settings.WEB_PROCESSES, settings.GATEWAY_PROCESSES = web, gateway
        self.port, self.keeper = ports.free_port(0), Supervisor(folder, lambda message: None)
        for process in Command()._web("127.0.0.1", self.port, {"REQUEST_SECONDS": "5"}):
            process.command = [
                "tests.support.echo_application:application" if word == OURS else word for word in process.command
            ]
            self.keeper.start(process)
        self.kinds = {running.handle.pid: running.process.name.partition("-")[0] for running in self.keeper.running}

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def ask(self, path: str, body: bytes = b"", connection: http.client.HTTPConnection | None = None) -> Any:
        connection = connection or self.connection()
        connection.request("POST", path, body)
        return json.loads(connection.getresponse().read())

    def kind(self, path: str, **more: Any) -> str:
        return self.kinds[self.ask(path, **more)["pid"]]


@pytest.fixture
def site(folder: Path, settings: Any) -> Iterator[Site]:
    made = Site(folder, settings)
    yield made
    made.keeper.stop()


def test_each_request_of_a_connection_reaches_its_kind_of_process(site: Site) -> None:
    connection, draw = site.connection(), random.Random(5)
    for _ in range(40):
        path, size = draw.choice(("/", "/jobs/", "/v1/chat/completions", "/v1x", "/v1/")), draw.choice((0, 9, 700_000))
        answer = site.ask(path, b"x" * size, connection)
        assert (answer["path"], answer["length"]) == (path, size) and answer["client"][0] == "127.0.0.1"
        assert site.kinds[answer["pid"]] == ("gateway" if path.startswith(PREFIX) else "web"), path
    assert all(path.startswith(PREFIX) for path in INTERFACES)


def test_a_request_in_small_pieces_arrives_whole(site: Site) -> None:
    for path in (b"/v1/models", b"/x"):
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as caller:
            for byte in b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc" % path:
                caller.sendall(bytes([byte]))
                time.sleep(0.001)
            answer = b"".join(iter(lambda: caller.recv(1000), b""))
        assert b'"length": 3' in answer and b'"path": "%b"' % path in answer


def test_calls_wait_for_the_next_process_of_the_gateway_while_pages_are_answered(site: Site) -> None:
    gateway = next(running for running in site.keeper.running if running.process.name == "gateway")
    gateway.handle.kill()
    gateway.handle.wait()
    waiting = [site.connection() for _ in range(20)]
    for one in waiting:
        one.request("POST", "/v1/models", b"abc")
    assert site.kind("/jobs/") == "web"
    assert ports.wait_until(lambda: site.keeper.watch() or gateway not in site.keeper.running, 15.0)
    answers = [json.loads(one.getresponse().read()) for one in waiting]
    assert {answer["pid"] for answer in answers} == {site.keeper.running[1].handle.pid}
    assert [answer["length"] for answer in answers] == [3] * 20


def test_two_processes_of_the_gateway_share_the_calls(folder: Path, settings: Any) -> None:
    site = Site(folder, settings, gateway=2)
    try:
        pids = {site.ask("/v1/models")["pid"] for _ in range(60)}
        stopped = next(iter(pids))
        next(one.handle for one in site.keeper.running if one.handle.pid == stopped).send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        assert stopped not in {site.ask("/v1/models")["pid"] for _ in range(5)}
        assert {site.kinds[pid] for pid in pids} == {"gateway"}
    finally:
        for one in site.keeper.running:
            one.handle.send_signal(signal.SIGCONT)
        site.keeper.stop()


def test_without_a_process_of_the_gateway_or_with_tls_web_processes_answer_everything(
    folder: Path, settings: Any
) -> None:
    site = Site(folder, settings, gateway=0)
    try:
        assert site.kind("/v1/models") == site.kind("/") == "web"
    finally:
        site.keeper.stop()
    settings.GATEWAY_PROCESSES, settings.TLS_CERT_FILE = 1, "cert.pem"
    assert [one.name for one in Command()._web("127.0.0.1", ports.free_port(0), {})] == ["web"]


@pytest.mark.parametrize(("unsent", "encrypted"), [(1, False), (0, True)])
def test_a_connection_with_unsent_bytes_or_encryption_stays(unsent: int, encrypted: bool) -> None:
    ends = channel_ends()
    transport: Any = SimpleNamespace(
        get_write_buffer_size=lambda: unsent, get_extra_info=lambda name: encrypted if name == "sslcontext" else None
    )
    assert not ConnectionHandover(ends[0], gateway=False).gave(transport, b"POST /v1/models HTTP/1.1\r\n")
    with pytest.raises(BlockingIOError):
        ends[1].recv(1)


def test_while_the_channel_is_full_a_process_keeps_its_connections() -> None:
    ends, aborted = channel_ends(), []
    transport: Any = SimpleNamespace(
        get_write_buffer_size=lambda: 0,
        get_extra_info={"socket": ends[1]}.get,
        abort=lambda: aborted.append(1),
    )
    handover = ConnectionHandover(ends[0], gateway=False)
    while handover.gave(transport, b"POST /v1/models".ljust(LONGEST // 4)):
        pass
    assert 0 < len(aborted) < 10


@pytest.mark.thorough(reason="a site is started, and processes are killed")
def test_a_site_of_two_web_processes_is_one_site(folder: Path, own_services: None) -> None:
    port = ports.free_port(0)
    up = Up(folder / "data", "--port", str(port), "--demo", WEB_PROCESSES="2")
    address = f"http://127.0.0.1:{port}"
    try:
        [job] = up.until("SELECT id FROM jobs_job WHERE status = 'running'", 600)
        lines = (up.data / "secrets" / "demo-users.txt").read_text(encoding="utf-8").splitlines()
        browser = signed_in(address, dict(line.split(": ", 1) for line in lines if ": " in line)["adam"].strip())

        def asked(path: str) -> httpx.Response:
            return httpx.get(address + path, cookies=browser.cookies, timeout=30)

        def counted() -> float:
            name = "django_http_requests_before_middlewares_total"
            return float(re.findall(rf"^{name} (\S+)$", asked("/metrics").text, re.MULTILINE)[0])

        before = counted()
        assert {asked("/jobs/").status_code for _ in range(40)} == {200}
        assert counted() == before + 41  # with the first reading of the figures
        cookie = {"Cookie": f"sessionid={browser.cookies['sessionid']}", "Origin": address}
        watching = [connect(f"ws{address[4:]}/ws/jobs/{job}/", additional_headers=cookie) for _ in range(8)]
        assert all(json.loads(one.recv(30)) for one in watching)

        draw, kinds = random.Random(seed := random.randrange(10**6)), ("web", "web-2", "gateway")
        print("seed", seed)
        for name in draw.sample(kinds, 3):
            [[pid]] = up.rows("SELECT pid FROM jobs_hostprocess WHERE name = %s", name)
            time.sleep(draw.random())
            os.kill(pid, signal.SIGKILL)
            assert {asked("/jobs/").status_code for _ in range(10)} == {200}
            assert asked("/v1/models").status_code == 401
            up.until(f"SELECT pid <> {pid} AND pid > 0 FROM jobs_hostprocess WHERE name = '{name}'", 60)
        for one in watching:
            one.close()
    finally:
        up.stop()
