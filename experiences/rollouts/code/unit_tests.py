"""Runs tests on code. A program for the sandbox: {"code", "tests", "seconds"} in, the number of each passed test out.

Each test has a process of its own that loads the code again: neither an exit nor the effects of another test make it
pass. Standard library only.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import sys


def passes(code: str, test: str, seconds: float) -> bool:
    """Whether ``test`` (statements) runs to its end after ``code``, in its namespace, within so many seconds."""
    reads, writes = os.pipe()
    token = secrets.token_bytes(16)
    child = os.fork()
    if child == 0:
        os.close(reads)
        names = {"__name__": "answer"}
        try:
            exec(compile(code, "answer.py", "exec"), names)  # noqa: S102 - that is what the sandbox is for
            exec(compile(test, "test.py", "exec"), names)  # noqa: S102
            os.write(writes, token)
        finally:
            os._exit(0)
    os.close(writes)
    ready, _, _ = select.select([reads], [], [], seconds)
    passed = bool(ready) and os.read(reads, 16) == token
    os.close(reads)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return passed


def main() -> None:
    given = json.load(sys.stdin)
    # What the code prints is not a verdict, and there is nothing for it to read.
    report, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for number, test in enumerate(given["tests"]):
        if passes(given["code"], test, given["seconds"]):
            os.write(report, f"{number}\n".encode())


if __name__ == "__main__":
    main()
