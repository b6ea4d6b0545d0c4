"""Keeps a handful of processes running: started in order, restarted with back-off or when they hang, replaced before
they take too much memory, stopped in reverse order."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO

from agentcore_site.embedded.ports import wait_until
from agentcore_site.lib import heartbeats
from agentcore_site.lib.service_paths import CannotStart, as_user

FIRST_DELAY, LONGEST_DELAY, STOP_SECONDS = 0.2, 30.0, 20.0
CALM_SECONDS = 5.0  # a process that ran this long had started well: its delays begin again
# Status of a process that another one ended: by the signal itself, or, where the process handles SIGTERM, 0.
ENDED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, 0)
# Longer than a busy loop is ever silent, and shorter than the wait for a frozen worker's job.
HUNG_SECONDS = 30.0
CHECK_SECONDS = 1.0
ASLEEP_SECONDS = 10.0  # between two checks: the whole machine slept, so no sign could be seen
REPLACED_AFTER_SECONDS = 60.0  # a process takes its memory for some time before another one is started in its place
PAGE = os.sysconf("SC_PAGE_SIZE")
LOG_LIMIT = 16 * 1024 * 1024
PR_SET_PDEATHSIG = 1


@dataclass
class Process:
    """One process to keep: how to start it, when it is ready, how to ask it to stop.

    ``heartbeats``: it writes them (``agentcore_site.lib.heartbeats``). ``sockets``: those that it inherits, so that
    connections wait for the next process while none runs. ``most_memory``: bytes of resident memory above which another
    process is started and takes its place; 0: no limit. A process with sockets is ready at its first heartbeat.
    ``niceness``: as of ``nice``; a process of 5 gets a third of the time of a process of 0 where both want a core.
    ``leave_signal``: asks one that has a successor to end; it has ``leave_seconds`` then. None: as any other.
    """

    name: str
    command: list[str]
    ready: Callable[[], bool] | None = None
    user: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    cwd: str = "/"
    ready_seconds: float = 60.0
    heartbeats: bool = False
    sockets: tuple[socket.socket, ...] = ()
    most_memory: int = 0
    niceness: int = 0
    leave_signal: signal.Signals | None = None
    leave_seconds: float = STOP_SECONDS


@dataclass(slots=True)
class Running:
    """A started process. ``started``: by the monotonic clock. ``heartbeat``: the file of its heartbeats.
    ``replaceable``: the moment by that clock from which on a successor may be started. ``was_killed``: by the
    supervisor. ``taken_over``: done when this successor has its place; CannotStart if it did not become ready."""

    process: Process
    handle: subprocess.Popen[bytes]
    started: float
    heartbeat: Path | None
    replaceable: float
    was_ready: bool = False
    was_killed: bool = False
    taken_over: Future[None] | None = None

    @property
    def heartbeat_at(self) -> float:
        """Time of its last heartbeat by the clock, in seconds; 0 before the first one."""
        try:
            return self.heartbeat.stat().st_mtime if self.heartbeat else 0.0
        except OSError:
            return 0.0

    @property
    def is_alive(self) -> bool:
        return self.handle.poll() is None

    @property
    def is_ready(self) -> bool:
        if self.process.ready is not None:
            return self.process.ready()
        return self.heartbeat is None or self.heartbeat_at > 0

    def ask_to_stop(self) -> None:
        self.handle.send_signal(self.process.stop_signal)

    def ask_to_leave(self) -> float:
        """Returns the moment by the monotonic clock at which it is killed."""
        self.handle.send_signal(self.process.leave_signal or self.process.stop_signal)
        return time.monotonic() + self.process.leave_seconds

    def kill(self, say: Callable[[str], None]) -> None:
        """Kills it with all processes of its session."""
        say(f"{self.process.name} (pid {self.handle.pid}) did not stop in time and was killed")
        with suppress(ProcessLookupError):
            os.killpg(self.handle.pid, signal.SIGKILL)


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
        self.log_folder, self.say, self.to_stdout = log_folder, say, to_stdout
        self.running: list[Running] = []
        self._successors: dict[str, Running] = {}
        self._to_roll: dict[str, Future[None]] = {}
        self._leaving: list[tuple[Running, float]] = []  # with the time at which each is killed
        self._delays: dict[str, float] = {}
        self._restart_at: dict[str, float] = {}
        self._restarts: dict[str, int] = {}
        self._silence, self._checked_at = Silence(), time.monotonic()
        self.stopping = threading.Event()

    def start(self, process: Process) -> None:
        """Starts it and waits until it is ready.

        Raises:
            CannotStart: it ended or did not become ready; the message has the end of its log.
        """
        started = self._spawn(process)
        self.running.append(started)
        if process.ready is None and not process.sockets:
            return
        ok = wait_until(lambda: not started.is_alive or started.is_ready, process.ready_seconds)
        if not ok or not started.is_alive:
            raise CannotStart(f"{process.name} did not start. The end of its log:\n{self.tail(process.name)}")
        started.was_ready = True

    def add(self, process: Process) -> None:
        """Starts it and does not wait: ``watch`` sees when it is ready."""
        self.running.append(self._spawn(process))

    def drop(self, name: str) -> None:
        """Asks a process to stop and forgets it; ``watch`` kills it where it needs more than twenty seconds."""
        for running in [one for one in self.running if one.process.name == name]:
            self.running.remove(running)
            for known in (self._delays, self._restart_at, self._restarts):
                known.pop(name, None)
            if running.is_alive:
                running.ask_to_stop()
                self._leaving.append((running, time.monotonic() + STOP_SECONDS))

    def is_leaving(self, name: str) -> bool:
        return any(left.process.name == name and left.is_alive for left, _ in self._leaving)

    def roll(self, names: Iterable[str], say: Callable[[str], None]) -> None:
        """Replaces processes one after another: each by a successor that is ready before the old one is asked to
        leave. Call it in another thread than the one that calls ``watch``, which does the work.

        Raises:
            CannotStart: a successor did not become ready, or the site stops: that process and those after it stay.
        """
        for name in names:
            taken_over = self._to_roll[name] = Future()
            say(f"{name}: starts its successor")
            while not taken_over.done():
                if self.stopping.wait(0.05):
                    raise CannotStart("The site was stopped.")
            taken_over.result()
            say(f"{name}: replaced")

    def watch(self) -> None:
        """Restarts dead processes, kills hung ones, and replaces large ones. Call it a few times a second."""
        now = time.monotonic()
        if now - self._checked_at > CHECK_SECONDS:
            if now - self._checked_at > ASLEEP_SECONDS:
                self._silence.forget()
            self._checked_at = now
            self._end_hung(now)
            self._begin_replacements(now)
        self._begin_roll()
        self._replace(now)
        self._end_leaving(now)
        for index, running in enumerate(self.running):
            name = running.process.name
            if self.stopping.is_set():
                continue
            if running.is_alive:
                running.was_ready = running.was_ready or running.is_ready
            elif name in self._successors:
                continue  # which takes its place when it is ready
            elif name not in self._restart_at:
                delay = self._delay(running, now)
                self._restart_at[name] = now + delay
                self.say(f"{name} ended with {running.handle.returncode}; starting it again in {delay:.1f} s")
            elif now >= self._restart_at[name]:
                del self._restart_at[name]
                self._restarts[name] = self._restarts.get(name, 0) + 1
                self.running[index] = self._spawn(running.process)

    def _delay(self, running: Running, now: float) -> float:
        """Seconds until its restart: none where it was ready and another process ended it, else growing ones."""
        name = running.process.name
        if running.was_ready and not running.was_killed and running.handle.returncode in ENDED_FROM_OUTSIDE:
            self._delays.pop(name, None)
            return 0.0
        calm = now - running.started > CALM_SECONDS
        delay = FIRST_DELAY if calm else self._delays.get(name, FIRST_DELAY)
        self._delays[name] = min(delay * 2, LONGEST_DELAY)
        return delay

    def states(self) -> list[ProcessState]:
        found = []
        for running in list(self.running):
            pid = running.handle.pid if running.is_alive else 0
            beat_at = running.heartbeat_at
            silent = max(0.0, time.time() - beat_at) if beat_at else None
            name, age = running.process.name, time.monotonic() - running.started
            found.append(ProcessState(name, pid, self._restarts.get(name, 0), age, silent))
        return found

    def _end_hung(self, now: float) -> None:
        """Kills a process whose loop hangs, and a child of it that was stopped and never continued."""
        for running in self.running:
            if not running.heartbeat or self.stopping.is_set() or not running.is_alive:
                continue
            name, pid, beat_at = running.process.name, running.handle.pid, running.heartbeat_at
            if beat_at and self._silence.lasts(name, (pid, beat_at), now) > HUNG_SECONDS:
                self.say(f"{name} (pid {pid}) has hung for {HUNG_SECONDS:.0f} s and is killed")
                running.was_killed = True
                running.handle.kill()
            for child in _children(pid):
                stopped = _state(child) == "T"
                if self._silence.lasts(child, stopped, now) > HUNG_SECONDS and stopped:
                    self.say(f"a child of {name} (pid {child}) was stopped and is killed")
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)

    def _begin_replacements(self, now: float) -> None:
        """Starts a successor of each process that takes more memory than it may."""
        for running in self.running:
            process = running.process
            if self.stopping.is_set() or process.name in self._successors or not running.is_alive:
                continue
            taken = resident_memory(running.handle.pid) if process.most_memory else 0
            if taken > process.most_memory and now > running.replaceable:
                self.say(f"{process.name} takes {taken >> 20} MB of memory; another one is started in its place")
                self._successors[process.name] = self._spawn(process)

    def _begin_roll(self) -> None:
        """Starts the successor that ``roll`` asks for."""
        for running in self.running:
            name = running.process.name
            if name in self._to_roll and name not in self._successors and not self.stopping.is_set():
                taken_over = self._to_roll.pop(name)
                self._successors[name] = successor = self._spawn(running.process)
                successor.taken_over = taken_over

    def _replace(self, now: float) -> None:
        """Successors that are ready take their places; a process that was replaced answers what it has begun."""
        for index, running in enumerate(self.running):
            process, successor = running.process, self._successors.get(running.process.name)
            if successor is None or self.stopping.is_set():
                continue
            if not successor.is_alive:
                self.say(f"{process.name} was not replaced: the new process did not become ready")
                del self._successors[process.name]
                running.replaceable = now + REPLACED_AFTER_SECONDS
                if successor.taken_over:
                    why = f"The new {process.name} did not become ready. The end of its log:\n{self.tail(process.name)}"
                    successor.taken_over.set_exception(CannotStart(why))
            elif successor.is_ready:
                self.running[index] = self._successors.pop(process.name)
                self._restart_at.pop(process.name, None)
                if running.is_alive:
                    self._leaving.append((running, running.ask_to_leave()))
                if successor.taken_over:
                    successor.taken_over.set_result(None)
            elif now > successor.started + process.ready_seconds:
                successor.handle.kill()

    def _end_leaving(self, now: float) -> None:
        """Forgets replaced processes that have ended, and kills those that need more than their time."""
        still = []
        for left, ends in self._leaving:
            if left.is_alive and now > ends:
                left.kill(self.say)
                ends = now + STOP_SECONDS
            if left.is_alive:
                still.append((left, ends))
        self._leaving = still

    def stop(self) -> None:
        """Asks each to stop, the last started first; kills those that need more than twenty seconds."""
        self.stopping.set()
        replaced = [left for left, _ in self._leaving]
        for running in (*replaced, *self._successors.values(), *reversed(self.running)):
            if running.is_alive:
                running.ask_to_stop()
                try:
                    running.handle.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    running.kill(self.say)
                    with suppress(subprocess.TimeoutExpired):  # stuck in the kernel, on a disk that hangs
                        running.handle.wait(STOP_SECONDS)
        self.running.clear()

    def tail(self, name: str, lines: int = 20) -> str:
        try:
            text = (self.log_folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _spawn(self, process: Process) -> Running:
        environment = os.environ | process.environment
        heartbeat = self._heartbeat_file(process)
        if heartbeat:
            environment[heartbeats.FILE] = str(heartbeat)
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
                pass_fds=[one.fileno() for one in process.sockets],
                preexec_fn=_in_child(process),
            )
        now = time.monotonic()
        return Running(process, handle, now, heartbeat, now + REPLACED_AFTER_SECONDS)

    def _heartbeat_file(self, process: Process) -> Path | None:
        """A file without a heartbeat; another one than that of a process that is to be replaced."""
        if not process.heartbeats:
            return None
        used = {running.heartbeat for running in self.running if running.is_alive}
        used |= {left.heartbeat for left, _ in self._leaving}
        names = (f"{process.name}{n or ''}.heartbeat" for n in count())
        path = next(path for name in names if (path := self.log_folder / name) not in used)
        path.touch()
        os.utime(path, (0, 0))
        return path

    def _log(self, name: str) -> IO[bytes]:
        if self.to_stdout:
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


def resident_memory(pid: int) -> int:
    """Bytes of resident memory; 0 if there is no such process, or this is not Linux."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def is_alive(pid: int) -> bool:
    """True if the process exists here, or if that is unknown (no Linux)."""
    return _state(pid) not in ("", "Z", "X") or not Path("/proc/self/stat").exists()


def _state(pid: int) -> str:
    """One letter, as Linux has it; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def _in_child(process: Process) -> Callable[[], None] | None:
    """Asks Linux to send ``stop_signal`` when the supervisor dies, so that no process is left behind, and to run the
    process with its niceness."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: nothing may allocate after it

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(process.stop_signal))
        if process.niceness:
            os.nice(process.niceness)

    return prepare
