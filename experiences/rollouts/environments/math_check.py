"""Whether two formulas are the same, asked of a process with limits of time and memory (``math_worker``)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

from experiences.rollouts.environments.safe_regex import TooSlow

PROGRAM: Final = Path(__file__).with_name("math_worker.py")
MAX_FORMULA: Final = 2_000  # characters; a longer one is compared as text only


class _Comparer:
    """The process, started at the first question and again after one that was too much for it. A process that was
    forked meanwhile starts one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def same(self, expected: str, answer: str) -> bool:
        """Raises TooSlow: the comparison took more time or memory than it may."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(json.dumps([expected, answer]) + "\n")
                process.stdin.flush()
                said = process.stdout.readline().strip()
            except OSError:
                said = ""
            if said not in ("true", "false"):
                self.close()
                raise TooSlow("the comparison of the formulas takes too long on this answer")
            return said == "true"

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        made = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
            cwd="/",
            text=True,
            encoding="utf-8",
        )
        assert made.stdout is not None
        if made.stdout.readline() != "ready\n":
            made.kill()
            made.wait()
            raise RuntimeError("The process that compares formulas does not start: is math-verify installed?")
        self._process, self._owner = made, os.getpid()
        return made

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


_COMPARER: Final = _Comparer()
atexit.register(_COMPARER.close)
os.register_at_fork(after_in_child=lambda: setattr(_COMPARER, "_lock", threading.Lock()))


@lru_cache(maxsize=4_096)
def same_formula(expected: str, answer: str) -> bool:
    """Whether math-verify holds them for the same. Raises TooSlow, and RuntimeError: it is not installed."""
    if max(len(expected), len(answer)) > MAX_FORMULA:
        return False
    return _COMPARER.same(expected, answer)
