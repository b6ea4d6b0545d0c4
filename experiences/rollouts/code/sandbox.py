"""Runs a command on text of a model. ``isolation`` says what it is kept from.

Without that isolation nothing runs: ``unavailable`` says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final

PROGRAM: Final = Path(__file__).with_name("isolation.py")
MEBIBYTE: Final = 1 << 20
OUTPUT_BYTES: Final = 4 * MEBIBYTE
LIMITS: Final = {
    "AS": 384 * MEBIBYTE,  # of each process
    "NPROC": 8,
    "NOFILE": 64,
    "FSIZE": OUTPUT_BYTES,
    "CORE": 0,
}
DISK_BYTES: Final = 16 * MEBIBYTE
SYSTEM: Final = ("/usr", "/lib", "/lib64", "/bin")
ENVIRONMENT: Final = {"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "RAYON_NUM_THREADS": "1"}  # noqa: S108


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of a command. ``code`` is its exit status (137: killed); ``output`` at most 4 MiB."""

    code: int
    output: str
    error: str
    timed_out: bool = False


def python() -> str:
    """The interpreter as the sandbox sees it."""
    return os.path.realpath(sys.prefix) + "/bin/python"


def run(command: Sequence[str], given: str, seconds: int) -> Finished:
    """Runs ``command`` with ``given`` on its standard input, for at most so many seconds of the clock."""
    wanted = {
        "command": list(command),
        "environment": ENVIRONMENT,
        "shown": _read_only_paths(),
        "disk_bytes": DISK_BYTES,
        "limits": {**LIMITS, "CPU": seconds},
        "seconds": seconds + 1,  # for a caller that was killed meanwhile
    }
    launch = [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(wanted)]
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as wrong:
        source.write(given.encode(errors="replace"))
        source.seek(0)
        # Files and not pipes: the limit of a file's size bounds the output.
        with subprocess.Popen(launch, stdin=source, stdout=output, stderr=wrong, env={}, cwd="/") as process:
            try:
                code, timed_out = process.wait(seconds), False
            except subprocess.TimeoutExpired:
                process.kill()
                code, timed_out = 137, True
        return Finished(code, _text(output), _text(wrong), timed_out)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode(errors="replace")


def unavailable() -> str:
    """Why nothing can be run here; "" where it can."""
    try:
        return _refused()
    except TimeoutError:
        return "the trial was given no processor for 10 s"


@cache
def _refused() -> str:
    """Tried once for a process.

    Raises:
        TimeoutError: the machine is too busy for an answer; the next call tries again.
    """
    if sys.platform != "linux":
        return "it needs Linux"
    done = run([python(), "-I", "-S", "-c", "print('ready')"], "", 10)
    if done.timed_out:
        raise TimeoutError
    return "" if done.output == "ready\n" else (done.error.strip()[-300:] or f"the trial ended with {done.code}")


@cache
def _read_only_paths() -> list[str]:
    """The system's libraries, the interpreter and its packages."""
    own = [os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.prefix)]
    inner = [path for path in dict.fromkeys(own) if not path.startswith("/usr/") and path != "/usr"]
    return [path for path in (*SYSTEM, *inner) if os.path.exists(path)]
