"""A process that can be killed at any moment and goes on at once: a child that is forked again after each death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agentcore_site import env
from tests.support.workers import environment

PROGRAM = """
import os, time, django
django.setup()
{imports}
from agentcore_site.lib import row_scope
row_scope.outside(row_scope.EVERYTHING)  # as a task has it
while True:  # a process of its own for what is killed: it begins at once
    pid = os.fork()
    if pid == 0:
        while True:
            {does}
            time.sleep(0.01)
    print(pid, flush=True)
    os.waitpid(pid, 0)
"""


class Respawning:
    """``kill`` ends the child, wherever it is; the next one is there when it returns."""

    def __init__(self, imports: str, does: str) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(imports=imports, does=does)],
            cwd=env.ROOT,
            env=environment() | {"DJANGO_SETTINGS_MODULE": "agentcore_site.settings"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._child = self._next()

    def _next(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        self._child = self._next()

    def end(self) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.wait(10)


@contextmanager
def respawning(imports: str, does: str) -> Iterator[Respawning]:
    """``does`` again and again, in a process that ends with the block."""
    process = Respawning(imports, does)
    try:
        yield process
    finally:
        process.end()
