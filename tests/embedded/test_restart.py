"""A restart of a running site: successors take the places of processes one by one, and no call is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from django.core.management import CommandError, call_command
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from agentcore_site import env
from agentcore_site.embedded import rolling
from agentcore_site.embedded.management.commands import up
from agentcore_site.embedded.ports import wait_until
from agentcore_site.embedded.rolling import RollingRestart, progress_path, restart_asked
from agentcore_site.embedded.stack import Stack
from agentcore_site.embedded.supervisor import Supervisor
from agentcore_site.lib.service_paths import CannotStart
from tests.embedded.test_handover import Site
from tests.embedded.test_replacing import Callers, answered, answering
from tests.support.up import environment
from tests.support.workers import eventually


class Watch:
    """Calls ``watch`` of a supervisor until the end of the block, as `up` does."""

    def __init__(self, keeper: Supervisor) -> None:
        self._keeper, self._done = keeper, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._keeper.watch()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def pids(keeper: Supervisor) -> list[int]:
    return [running.handle.pid for running in keeper.running]


def names(keeper: Supervisor) -> list[str]:
    return [running.process.name for running in keeper.running]


def test_processes_are_replaced_one_by_one_and_no_call_is_refused(folder: Path) -> None:
    keeper, said = Supervisor(folder, lambda message: None), list[str]()
    process = answering(0)
    keeper.start(process)
    keeper.start(replace(process, name="answers-2"))
    before = [running.handle for running in keeper.running]
    try:
        with Watch(keeper), Callers(process) as callers:
            keeper.roll(names(keeper), said.append)
            assert wait_until(lambda: all(one.poll() == 0 for one in before), 15.0)
            assert answered(process) in pids(keeper)
        assert not callers.refused and not {one.pid for one in before} & set(pids(keeper))
        assert [state.restarts for state in keeper.states()] == [0, 0]
    finally:
        keeper.stop()
    verbs = ("starts its successor", "replaced")
    assert said == [f"{name}: {verb}" for name in ("answers", "answers-2") for verb in verbs]


@pytest.mark.parametrize("program", ["raise SystemExit('no such setting')", "import time; time.sleep(60)"])
def test_a_successor_that_is_not_ready_leaves_all_as_it_is(folder: Path, program: str) -> None:
    keeper = Supervisor(folder, lambda message: None)
    process = answering(0)
    keeper.start(process)
    keeper.start(replace(process, name="answers-2"))
    before = pids(keeper)
    process.command[2], process.ready_seconds = program, 1.0
    try:
        failed = pytest.raises(CannotStart, match="The new answers did not become ready")
        with Watch(keeper), Callers(process) as callers, failed as error:
            keeper.roll(names(keeper), lambda line: None)
        assert ("no such setting" in str(error.value)) == ("SystemExit" in program)
        assert pids(keeper) == before and set(callers.pids) <= set(before) and not callers.refused
    finally:
        keeper.stop()


def test_a_process_that_ended_is_replaced_too(folder: Path) -> None:
    keeper = Supervisor(folder, lambda message: None)
    process = answering(0)
    keeper.start(process)
    first = keeper.running[0].handle
    first.kill()
    first.wait()
    try:
        with Watch(keeper):
            keeper.roll(["answers"], lambda line: None)
        assert answered(process) in pids(keeper) and first.pid not in pids(keeper)
    finally:
        keeper.stop()


def test_a_restart_ends_with_the_site(folder: Path) -> None:
    keeper = Supervisor(folder, lambda message: None)
    process = answering(0)
    keeper.start(process)
    process.command[2] = "import time; time.sleep(60)"
    with Watch(keeper):
        threading.Timer(0.5, keeper.stopping.set).start()
        with pytest.raises(CannotStart, match="was stopped"):
            keeper.roll(["answers"], lambda line: None)
    keeper.stop()


# -- the web server's processes ---------------------------------------------------------------------------------------


ONE_ROLE = pytest.mark.thorough(reason="the same site without a gateway of its own")


@pytest.fixture(params=[pytest.param((1, 2), id="with a gateway"), pytest.param((2, 0), id="without", marks=ONE_ROLE)])
def site(folder: Path, settings: Any, request: pytest.FixtureRequest) -> Iterator[Site]:
    web, gateway = request.param
    made = Site(folder, settings, web=web, gateway=gateway)
    yield made
    made.keeper.stop()


def call_until(done: threading.Event, base: str, seed: int, answers: list[int], lost: list[str]) -> None:
    draw = random.Random(seed)
    with httpx.Client(base_url=base, timeout=100) as http:  # one connection that is kept
        while not done.is_set():
            path = draw.choice(["/", "/jobs/", "/v1/models", "/v1/stream/3", "/stream/2"])
            try:
                answer = http.post(path, content=b"x" * draw.choice([0, 10, 100_000]))
                answers.append(json.loads(answer.text)["pid"])
            except (httpx.HTTPError, ValueError) as error:
                lost.append(f"{path}: {error!r}")
            time.sleep(draw.choice([0, 0, 0.05, 0.3]))


def test_kept_connections_and_streams_lose_no_call_over_restarts(site: Site) -> None:
    done, answers, lost, base = threading.Event(), list[int](), list[str](), f"http://127.0.0.1:{site.port}"
    print("seed", seed := random.randrange(10**6))
    callers = [
        threading.Thread(target=call_until, args=(done, base, seed + number, answers, lost)) for number in range(16)
    ]
    for one in callers:
        one.start()
    replaced = []
    try:
        with Watch(site.keeper):
            assert wait_until(lambda: len(answers) > 30, 60.0)
            for _ in range(2):
                replaced += [running.handle for running in site.keeper.running]
                site.keeper.roll(names(site.keeper), lambda line: None)
            assert wait_until(lambda: all(one.poll() == 0 for one in replaced), 60.0)
            counted = len(answers)
            assert wait_until(lambda: len(answers) > counted + 30, 60.0)
    finally:
        done.set()
        for one in callers:
            one.join()
    assert not lost
    assert set(answers[counted + 16 :]) <= set(pids(site.keeper))


def test_a_stream_ends_whole_after_its_process_was_replaced(site: Site) -> None:
    base = f"http://127.0.0.1:{site.port}"
    with Watch(site.keeper), httpx.stream("POST", f"{base}/v1/stream/40", timeout=30) as stream:
        left = {running.handle.pid: running.handle for running in site.keeper.running}
        site.keeper.roll(names(site.keeper), lambda line: None)

        def answering() -> set[int]:
            return {httpx.post(f"{base}/v1/models").json()["pid"] for _ in range(5)}

        # A process that leaves begins no call, once it has read the signal.
        assert wait_until(lambda: answering() <= set(pids(site.keeper)), 5.0)
        pid = json.loads("".join(stream.iter_text()))["pid"]
        assert pid in left and wait_until(lambda: left[pid].poll() == 0, 10.0)


@pytest.mark.thorough(reason="it waits for the end of a stream's time")
def test_a_process_that_leaves_ends_soon_with_its_site(site: Site) -> None:
    base, began = f"http://127.0.0.1:{site.port}", time.monotonic()
    with httpx.stream("POST", f"{base}/v1/stream/6000", timeout=30):
        with Watch(site.keeper):
            site.keeper.roll(names(site.keeper), lambda line: None)
        site.keeper.stop()
    assert time.monotonic() - began < 60  # the stream would take ten minutes


def test_a_websocket_is_closed_with_1012_and_open_again_elsewhere(site: Site) -> None:
    url = f"ws://127.0.0.1:{site.port}/ws/"
    with Watch(site.keeper), connect(url) as page:
        site.keeper.roll(names(site.keeper), lambda line: None)
        with pytest.raises(ConnectionClosed) as closed:
            page.recv(10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
        # A busy machine may let the old process take one more, before it reads that it has to leave; pages try again.
        eventually(lambda: _stays_open(url), seconds=10)


def _stays_open(url: str) -> bool:
    with connect(url) as page:
        try:
            page.recv(0.2)
        except TimeoutError:
            return True
        except ConnectionClosed as closed:
            assert closed.rcvd is not None and closed.rcvd.code == 1012
    return False


def test_a_request_that_is_half_sent_is_answered(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as half, Watch(site.keeper):
        half.sendall(b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\na")
        time.sleep(0.3)
        site.keeper.roll(names(site.keeper), lambda line: None)
        half.sendall(b"bc")
        assert b'"length": 3' in half.recv(4000) + half.recv(4000)


# -- the command and its `up` -----------------------------------------------------------------------------------------


@pytest.fixture
def hung_up(folder: Path) -> Iterator[Callable[[Callable[[], None]], RollingRestart]]:
    """A running `up`: this process, which has the lock of the folder and restarts on SIGHUP."""
    stack = Stack(folder, lambda line: None)
    stack.lock()
    before = signal.getsignal(signal.SIGHUP)

    def begin(prepare: Callable[[], None]) -> RollingRestart:
        path = progress_path(stack.run_folder, "")
        restarts = RollingRestart(stack.supervisor, path, names(stack.supervisor), prepare, lambda line: None)
        signal.signal(signal.SIGHUP, lambda *_: restarts.ask())
        return restarts

    yield begin
    signal.signal(signal.SIGHUP, before)
    stack.stop()


def test_the_command_shows_the_progress_until_the_end(folder: Path, hung_up: Any) -> None:
    hung_up(lambda: None)
    for _ in range(2):
        lines = list(restart_asked(folder / "run", ""))
        assert lines[0] == "checks the release and the database" and "all processes were replaced" in lines[-1]


def test_the_command_says_why_nothing_was_restarted(folder: Path, hung_up: Any) -> None:
    hung_up(mock.Mock(side_effect=CannotStart("migrate failed:\nno such table")))
    with pytest.raises(CannotStart, match=r"that were not replaced go on\. migrate failed: no such table"):
        list(restart_asked(folder / "run", ""))


def test_the_command_is_clear_where_no_site_can_be_asked(
    folder: Path, hung_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "ANSWER_SECONDS", 0.3)
    with pytest.raises(CannotStart, match=r"\(pid \d+\) still starts, or is of an earlier release"):
        list(restart_asked(folder / "run", ""))
    with pytest.raises(CannotStart, match=f"No site runs on {folder}"):
        list(restart_asked(folder / "run", "web"))
    monkeypatch.setenv("DATA_DIR", str(folder / "empty"))
    with pytest.raises(CommandError, match="No site runs on"):
        call_command("restart")


def test_a_terminal_that_is_closed_stops_the_site_and_any_other_hang_up_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command: Any = up.Command()
    command._stopping, command._restarts = threading.Event(), mock.Mock()
    controller, terminal = os.openpty()
    monkeypatch.setattr(up.os, "isatty", lambda number, isatty=os.isatty: number == 0 and isatty(terminal))
    command._terminals = up._terminals()
    command._hang_up()
    assert command._restarts.ask.call_count == 1 and not command._stopping.is_set()
    os.close(controller)
    command._hang_up()
    assert command._restarts.ask.call_count == 1 and command._stopping.is_set()
    os.close(terminal)


@pytest.mark.thorough(reason="a site is started and restarted under load, and a process is killed")
def test_a_site_under_32_callers_loses_no_call_by_a_restart(folder: Path, own_services: None) -> None:
    command = [sys.executable, "-m", "tests.performance", "restarts", "1"]
    done = subprocess.run(command, env=environment(folder), cwd=env.ROOT, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and figures["lost_by_restarts"] == 0
    assert min(figures["answered_by_kind"].values()) > 20
    # A caller whose kept connection was the killed process's loses one call, under way or the next.
    assert figures["lost_by_kill"] <= figures["callers_of_killed"] and figures["lost_after_kill"] == 0
    assert figures["journals_of_killed"] > 0 and figures["seconds_until_its_journals_are_finished"] < 5
