"""Processes that inherit their socket: one that takes too much memory is replaced, and calls wait, not fail."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcore_site.embedded import ports, supervisor
from agentcore_site.embedded.ports import wait_until
from agentcore_site.embedded.supervisor import Process, Supervisor

ANSWERS = """
import os, signal, socket, sys, time
taken = bytearray(int(sys.argv[2]))
server = socket.socket(fileno=int(sys.argv[1]))
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
server.settimeout(0.1)
time.sleep(0.2)
while not ended:
    os.utime(os.environ["HEARTBEAT_FILE"])
    try:
        caller, _ = server.accept()
    except TimeoutError:
        continue
    caller.sendall(b"%d" % os.getpid())
    caller.close()
"""


def answering(memory: int, **more: Any) -> Process:
    listener = ports.listener("127.0.0.1", 0)
    command = [sys.executable, "-c", ANSWERS, str(listener.fileno()), str(memory)]
    return Process("answers", command, heartbeats=True, sockets=(listener,), **more)


def answered(process: Process) -> int:
    """Calls once; the id of the process that answered."""
    with socket.create_connection(process.sockets[0].getsockname(), timeout=10) as connection:
        return int(connection.recv(20))


class Callers:
    """Calls the process the whole time, and keeps which process answered each call."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pids: list[int] = []
        self.refused: list[Exception] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def _call(self) -> None:
        while not self._done.wait(0.01):
            try:
                self.pids.append(answered(self._process))
            except (OSError, ValueError) as error:
                self.refused.append(error)

    def __enter__(self) -> Callers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def test_a_process_that_takes_too_much_memory_is_replaced_and_no_call_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "REPLACED_AFTER_SECONDS", 1.0)
    said: list[str] = []
    keeper = Supervisor(folder, said.append)
    process = answering(64 << 20, most_memory=48 << 20)
    keeper.start(process)
    first = keeper.running[0].handle
    try:
        with Callers(process) as callers:
            assert wait_until(lambda: keeper.watch() or len(set(callers.pids)) == 2, 15.0, every=0.02)
            assert wait_until(lambda: keeper.watch() or first.poll() is not None, 15.0, every=0.02)
            assert keeper.running[0].handle.pid != first.pid and keeper.states()[0].restarts == 0
        assert not callers.refused and first.returncode == 0
        assert [line for line in said if "of memory; another one is started in its place" in line]
    finally:
        keeper.stop()
    assert not keeper.running


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "import time; time.sleep(60)"])
def test_a_successor_that_does_not_start_leaves_its_place_to_the_process_that_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "REPLACED_AFTER_SECONDS", 0.5)
    said: list[str] = []
    keeper = Supervisor(folder, said.append)
    process = answering(64 << 20, most_memory=48 << 20)
    keeper.start(process)
    first = keeper.running[0].handle
    process.command[2], process.ready_seconds = program, 1.0
    try:
        with Callers(process) as callers:
            done = lambda: keeper.watch() or sum("was not replaced" in line for line in said) == 2  # noqa: E731
            assert wait_until(done, 15.0, every=0.02)
        assert set(callers.pids) == {first.pid} and not callers.refused and first.poll() is None
    finally:
        keeper.stop()


def test_of_two_processes_with_one_socket_the_free_one_answers(folder: Path) -> None:
    keeper = Supervisor(folder, lambda message: None)
    process = answering(0)
    keeper.start(process)
    keeper.start(replace(process, name="answers-2"))
    first, second = (running.handle for running in keeper.running)
    try:
        with Callers(process) as callers:
            assert wait_until(lambda: {first.pid, second.pid} == set(callers.pids), 15.0)
        first.send_signal(signal.SIGSTOP)
        time.sleep(0.05)  # until it has stopped
        assert [answered(process) for _ in range(5)] == [second.pid] * 5
    finally:
        first.send_signal(signal.SIGCONT)
        keeper.stop()


def test_a_process_runs_with_its_niceness(folder: Path) -> None:
    keeper = Supervisor(folder, lambda message: None)
    keeper.start(Process("nice", ["/bin/sleep", "60"], niceness=3))
    try:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, keeper.running[0].handle.pid) == min(19, before + 3)
    finally:
        keeper.stop()


def test_calls_wait_while_a_killed_process_starts_again(folder: Path) -> None:
    keeper = Supervisor(folder, lambda message: None)
    process = answering(0)
    keeper.start(process)
    first = keeper.running[0].handle
    try:
        with Callers(process) as callers:
            assert wait_until(lambda: keeper.watch() or len(callers.pids) > 3, 15.0, every=0.02)
            first.kill()
            assert wait_until(lambda: keeper.watch() or len(set(callers.pids)) == 2, 15.0, every=0.02)
        assert len(callers.refused) <= 1  # the call that the killed process had taken
    finally:
        keeper.stop()
