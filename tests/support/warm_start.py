"""Processes of the product that begin loaded: each is a fork of one that did nothing but import the product.

Web, worker and beat load the same 2,200 modules, which takes each of them some three seconds of a core, and the tests
start hundreds. The first process with an environment is started as always; from the second one on, with exactly that
environment, it is forked. It is a process like any other: entry point, arguments, environment, folder, log, group and
status at its end are its own, and it opens each connection itself. Benches, which measure memory and starts, and tests
that start the command line do without.
"""

from __future__ import annotations

import array
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

# What the three load before they do anything. `agentcore_site.asgi` is not among them: it asks the database.
LOADED: Final = (
    "agentcore_site.celery",
    "agentcore_site.jobs.worker_heartbeat",
    "agentcore_site.mcp_path",
    "agentcore_site.routing",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "channels.routing",
    "experiences.playbooks.ace.asgi_fast_path",
    "kombu.transport.redis",
    "evaluation.serving.gateway.application",
    "agentcore_site.lib.timed_requests",
    "uvicorn.main",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
OF_THE_MOMENT: Final = "PYTEST_CURRENT_TEST"  # differs from test to test, and nothing of ours reads it
LONGEST: Final = 2**20  # bytes of a request


class Forked:
    """The part of ``subprocess.Popen`` that tests use, for a process that is another one's child. Until its end was
    received, its number is not given to another."""

    def __init__(self, ends: socket.socket) -> None:
        self._ends = ends
        self.returncode: int | None = None
        self.pid = int(ends.recv(32))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            self.returncode = int(self._ends.recv(32))
            self._ends.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Loaded:
    """A process that has loaded the product in an environment, and forks when it is asked to."""

    def __init__(self, environment: dict[str, str], folder: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, arguments: list[str], environment: dict[str, str], log: str) -> Forked:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            result = json.dumps({"arguments": arguments, "environment": environment, "log": log})
            socket.send_fds(self._control, [result.encode()], [theirs.fileno()])
        return Forked(ours)

    def end(self) -> None:
        self._control.close()
        self._process.wait(30)


@dataclass
class WarmStart:
    """Starts the product's processes, loaded where that pays: from the second one of an environment on."""

    folder: str
    _seen: set[frozenset[tuple[str, str]]] = field(default_factory=set)
    _loaded: dict[frozenset[tuple[str, str]], Loaded] = field(default_factory=dict)

    def process(self, arguments: list[str], environment: dict[str, str], log: str) -> Forked | None:
        """None: it is to be started as always."""
        key = frozenset(item for item in environment.items() if item[0] != OF_THE_MOMENT)
        if key not in self._seen:
            self._seen.add(key)
            return None
        if key not in self._loaded:
            self._loaded[key] = Loaded(environment, self.folder)
        return self._loaded[key].fork(arguments, environment, log)

    def end(self) -> None:
        for one in self._loaded.values():
            one.end()
        self._loaded.clear()


# -- in the process that forks ----------------------------------------------------------------------------------------


def _load() -> None:
    import django
    from django.urls import get_resolver
    from django.utils.module_loading import autodiscover_modules

    for name in LOADED[:1]:
        import_module(name)
    django.setup()
    for name in LOADED[1:]:
        import_module(name)
    autodiscover_modules("tasks")
    get_resolver().url_patterns  # noqa: B018  (as the web process does)


def _asked_for(control: socket.socket) -> dict[str, Any] | None:
    """Forks as it is asked to. In a forked process: what that one is to become. None: the tests have ended."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd: the process, and the socket for its end
    ended: dict[int, tuple[int, socket.socket]] = {}  # by that socket: sent, and kept until the other side confirms
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if ready in running:
                pid, ends = running.pop(ready)
                waiting.unregister(ready)
                os.close(ready)
                result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert result is not None
                exited = result.si_code == os.CLD_EXITED
                with suppress(OSError):  # no process listens any more
                    ends.send(str(result.si_status if exited else -result.si_status).encode())
                ended[ends.fileno()] = pid, ends
                waiting.register(ends, select.POLLIN)
            elif ready in ended:
                pid, ends = ended.pop(ready)
                waiting.unregister(ready)
                ends.close()
                os.waitpid(pid, 0)
            else:
                message, ancillary, _, _ = control.recvmsg(LONGEST, socket.CMSG_SPACE(array.array("i").itemsize))
                if not message:
                    return None
                ends = socket.socket(fileno=array.array("i", ancillary[0][2])[0])
                pid = os.fork()
                if pid == 0:
                    os.setsid()  # before anybody knows of it: what kills its group finds one
                    ends.send(str(os.getpid()).encode())
                    for one in (control, ends, *(theirs for _, theirs in (*running.values(), *ended.values()))):
                        one.close()
                    for number in running:
                        os.close(number)
                    return dict(json.loads(message))
                watched = os.pidfd_open(pid)
                running[watched] = pid, ends
                waiting.register(watched, select.POLLIN)


def _become(arguments: list[str], environment: dict[str, str], log: str) -> None:
    """Continues as a fresh interpreter with these arguments would."""
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _load()
    result = _asked_for(control)
    if result is not None:
        _become(**result)


if __name__ == "__main__":
    main()
