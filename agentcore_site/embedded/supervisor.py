"""Keeps a handful of processes running: started in order, restarted with back-off or when they hang, stopped in reverse
order."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from agentcore_site.embedded.ports import wait_until
from agentcore_site.lib import heartbeats
from agentcore_site.lib.service_paths import CannotStart, as_user

FIRST_DELAY, LONGEST_DELAY, STOP_SECONDS = 0.2, 30.0, 20.0
# A process that ran this long had started well, and one killed from outside is not the cause: both restart at once.
CALM_SECONDS, LONGEST_DELAY_KILLED = 5.0, 1.0
KILLED = (-signal.SIGKILL, -signal.SIGTERM)
# Longer than a busy loop is ever silent, and shorter than the wait for a frozen worker's job.
HUNG_SECONDS = 30.0
CHECK_SECONDS = 1.0
ASLEEP_SECONDS = 10.0  # between two checks: the whole machine slept, so no sign could be seen
LOG_LIMIT = 16 * 1024 * 1024
PR_SET_PDEATHSIG = 1


@dataclass
class Process:
    """One process to keep: how to start it, when it is ready, how to ask it to stop. ``heartbeats``: it writes them
    (``agentcore_site.lib.heartbeats``)."""

    name: str
    command: list[str]
    ready: Callable[[], bool] | None = None
    user: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    cwd: str = "/"
    ready_seconds: float = 60.0
    heartbeats: bool = False


@dataclass(frozen=True, slots=True)
class ProcessState:
    """``pid`` 0: it is down. ``age``: seconds since its start. ``silent_for``: seconds since its last heartbeat; None
    before the first one, and for a process without heartbeats."""

    name: str
    pid: int
    restarts: int
    age: float
    silent_for: float | None


class Silence:
    """Measures how long a sign stays the same, by this process's own clock, and only between regular checks."""

    def __init__(self) -> None:
        self._seen: dict[object, tuple[object, float]] = {}

    def lasts(self, key: object, sign: object, now: float) -> float:
        """Seconds for which ``sign`` has been the same at ``key``."""
        if self._seen.get(key, (None, 0.0))[0] != sign:
            self._seen[key] = (sign, now)
        return now - self._seen[key][1]

    def forget(self) -> None:
        self._seen.clear()


class Supervisor:
    """Owns its processes: they die with it, also after kill -9."""

    def __init__(self, log_folder: Path, say: Callable[[str], None], *, to_stdout: bool = False) -> None:
        """``to_stdout``: output of the processes goes to our own output, and not to one file each."""
        self.log_folder, self.say, self._to_stdout = log_folder, say, to_stdout
        self.running: list[tuple[Process, subprocess.Popen[bytes]]] = []
        self._delays: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._restart_at: dict[str, float] = {}
        self._restarts: dict[str, int] = {}
        self._silence, self._checked_at = Silence(), time.monotonic()
        self.stopping = threading.Event()

    def start(self, process: Process) -> None:
        """Starts it and waits until it is ready.

        Raises:
            CannotStart: it ended or did not become ready; the message has the end of its log.
        """
        handle = self._spawn(process)
        self.running.append((process, handle))
        if process.ready is None:
            return
        ok = wait_until(lambda: handle.poll() is not None or process.ready(), process.ready_seconds)  # type: ignore[misc]
        if not ok or handle.poll() is not None:
            raise CannotStart(f"{process.name} did not start. The end of its log:\n{self.tail(process.name)}")

    def watch(self) -> None:
        """Restarts dead processes, and kills hung ones. Call it a few times a second."""
        now = time.monotonic()
        if now - self._checked_at > CHECK_SECONDS:
            if now - self._checked_at > ASLEEP_SECONDS:
                self._silence.forget()
            self._checked_at = now
            self._end_hung(now)
        for index, (process, handle) in enumerate(self.running):
            if self.stopping.is_set() or handle.poll() is None:
                continue
            if process.name not in self._restart_at:
                calm = now - self._started[process.name] > CALM_SECONDS
                delay = FIRST_DELAY if calm else self._delays.get(process.name, FIRST_DELAY)
                longest = LONGEST_DELAY_KILLED if handle.returncode in KILLED else LONGEST_DELAY
                delay = min(delay, longest)
                self._delays[process.name] = min(delay * 2, longest)
                self._restart_at[process.name] = now + delay
                self.say(f"{process.name} ended with {handle.returncode}; starting it again in {delay:.1f} s")
            elif now >= self._restart_at[process.name]:
                del self._restart_at[process.name]
                self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
                self.running[index] = (process, self._spawn(process))

    def states(self) -> list[ProcessState]:
        found = []
        for process, handle in list(self.running):
            pid = handle.pid if handle.poll() is None else 0
            beat_at = self._heartbeat_at(process)
            silent = max(0.0, time.time() - beat_at) if beat_at else None
            age = time.monotonic() - self._started[process.name]
            found.append(ProcessState(process.name, pid, self._restarts.get(process.name, 0), age, silent))
        return found

    def _end_hung(self, now: float) -> None:
        """Kills a process whose loop hangs, and a child of it that was stopped and never continued."""
        for process, handle in self.running:
            if not process.heartbeats or self.stopping.is_set() or handle.poll() is not None:
                continue
            beat_at = self._heartbeat_at(process)
            if beat_at and self._silence.lasts(process.name, (handle.pid, beat_at), now) > HUNG_SECONDS:
                self.say(f"{process.name} (pid {handle.pid}) has hung for {HUNG_SECONDS:.0f} s and is killed")
                handle.kill()
            for child in _children(handle.pid):
                stopped = _state(child) == "T"
                if self._silence.lasts(child, stopped, now) > HUNG_SECONDS and stopped:
                    self.say(f"a child of {process.name} (pid {child}) was stopped and is killed")
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)

    def _heartbeat_file(self, process: Process) -> Path:
        return self.log_folder / f"{process.name}.heartbeat"

    def _heartbeat_at(self, process: Process) -> float:
        """Time of its last heartbeat by the clock, in seconds; 0 before the first one."""
        try:
            return self._heartbeat_file(process).stat().st_mtime if process.heartbeats else 0.0
        except OSError:
            return 0.0

    def stop(self) -> None:
        """Asks each to stop, the last started first; kills those that need more than twenty seconds."""
        self.stopping.set()
        for process, handle in reversed(self.running):
            if handle.poll() is None:
                handle.send_signal(process.stop_signal)
                try:
                    handle.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    self.say(f"{process.name} did not stop in {STOP_SECONDS:.0f} s and was killed")
                    os.killpg(handle.pid, signal.SIGKILL)
                    with suppress(subprocess.TimeoutExpired):  # stuck in the kernel, on a disk that hangs
                        handle.wait(STOP_SECONDS)
        self.running.clear()

    def tail(self, name: str, lines: int = 20) -> str:
        try:
            text = (self.log_folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _spawn(self, process: Process) -> subprocess.Popen[bytes]:
        environment = os.environ | process.environment
        if process.heartbeats:
            self._heartbeat_file(process).touch()
            os.utime(self._heartbeat_file(process), (0, 0))
            environment[heartbeats.FILE] = str(self._heartbeat_file(process))
        with self._log(process.name) as log:
            handle = subprocess.Popen(
                process.command,
                **as_user(process.user),
                cwd=process.cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone; we stop them in order
                preexec_fn=_dies_with_parent(process.stop_signal),
            )
        self._started[process.name] = time.monotonic()
        return handle

    def _log(self, name: str) -> IO[bytes]:
        if self._to_stdout:
            return os.fdopen(os.dup(sys.stdout.fileno()), "ab")
        path = self.log_folder / f"{name}.log"
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        return open(path, "ab")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it ended, or this is not Linux
        return []


def is_alive(pid: int) -> bool:
    """True if the process exists here, or if that is unknown (no Linux)."""
    return _state(pid) not in ("", "Z", "X") or not Path("/proc/self/stat").exists()


def _state(pid: int) -> str:
    """One letter, as Linux has it; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def _dies_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    """Asks Linux to send ``stop_signal`` when the supervisor dies, so that no process is left behind."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: nothing may allocate after it

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(stop_signal))

    return ask
