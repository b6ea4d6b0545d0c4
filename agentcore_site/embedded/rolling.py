"""Restarts of a running site without a pause: `manage.py restart` asks the `up` of a data folder by SIGHUP, and reads
its progress line by line from a file."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agentcore_site import env
from agentcore_site.embedded.supervisor import Supervisor
from agentcore_site.lib.service_paths import CannotStart

BEGUN, DONE, FAILED = "begun", "done", "failed"  # first words of lines
LOOK_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 30.0  # of an `up` that is asked while it starts
NO_SITE: Final = "No site runs on {}: start one with manage.py up, or set DATA_DIR."


def lock_path(run_folder: Path, role: str) -> Path:
    """A file that the `up` of a role locks; it holds its process id."""
    return run_folder / f"up{role}.lock"


def progress_path(run_folder: Path, role: str) -> Path:
    return run_folder / f"restart{role}.log"


class RollingRestart:
    """Restarts the processes of this `up` by their successors whenever it is asked to. ``prepare`` raises CannotStart
    where the new release can't run."""

    def __init__(
        self,
        supervisor: Supervisor,
        path: Path,
        names: list[str],
        prepare: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._supervisor, self._path, self._names = supervisor, path, names
        self._prepare, self._say = prepare, say
        self._asked = threading.Event()
        env.private_file(path, f"{os.getpid()}\n")  # its reader knows by this line that SIGHUP does not stop this `up`
        threading.Thread(target=self._run, name="restarts", daemon=True).start()

    def ask(self) -> None:
        """Asked while a restart is under way, another one follows."""
        self._asked.set()

    def _run(self) -> None:
        while not self._supervisor.stopping.is_set():
            if self._asked.wait(1.0):
                self._asked.clear()
                self._restart()

    def _restart(self) -> None:
        began = time.monotonic()
        self._write(BEGUN, "checks the release and the database")
        try:
            self._prepare()
            self._supervisor.roll(self._names, lambda line: self._write("", line))
        except (CannotStart, OSError) as error:
            self._write(FAILED, f"Processes that were not replaced go on. {' '.join(str(error).split())}")
        else:
            self._write(DONE, f"all processes were replaced in {time.monotonic() - began:.1f} s")

    def _write(self, state: str, line: str) -> None:
        self._say(f"restart: {line}")
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{state}\t{line}\n")


def restart_asked(run_folder: Path, role: str) -> Iterator[str]:
    """Asks the `up` of a data folder for a restart. Yields its progress until the end.

    Raises:
        CannotStart: no site runs, it can't be asked, it ended meanwhile, or a successor did not become ready.
    """
    pid, path = _pid_of_up(run_folder, role), progress_path(run_folder, role)
    deadline = time.monotonic() + ANSWER_SECONDS
    while _first_line(path) != str(pid):
        if time.monotonic() > deadline:
            raise CannotStart(
                f"The site (pid {pid}) still starts, or is of an earlier release: stop and start that one."
            )
        time.sleep(LOOK_SECONDS)
    read = path.stat().st_size
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError:
        raise CannotStart(f"The site (pid {pid}) runs as another user: ask as that one, or as root.") from None
    is_ours = False  # a restart that was under way before is another one's
    while True:
        with open(path, encoding="utf-8") as file:
            file.seek(read)
            lines = file.readlines()
            read = file.tell()
        for state, _, line in (line.rstrip("\n").partition("\t") for line in lines):
            is_ours = is_ours or state == BEGUN
            if not is_ours:
                continue
            if state == FAILED:
                raise CannotStart(line)
            yield line
            if state == DONE:
                return
        _pid_of_up(run_folder, role)
        time.sleep(LOOK_SECONDS)


def _pid_of_up(run_folder: Path, role: str) -> int:
    """Raises CannotStart: none runs."""
    path = lock_path(run_folder, role)
    try:
        with open(path, "r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return int(file.read().strip() or 0)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CannotStart(f"{path} can't be read: {error.strerror}.") from error
    raise CannotStart(NO_SITE.format(run_folder.parent))


def _first_line(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""
