"""A process's work that is not in the database yet, in files of its own: nothing is lost when it is killed.

A line is written before its step is relied on (a call before it is sent), so that the process that finds the
files of one that is gone can finish its work (``serving.traces.recovery``). A segment goes once everything that was
begun in it is in the database. Lines survive the end of the process, not a loss of power.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import orjson

from agentcore_site.ids import uuid7

SEGMENT_BYTES: Final = 8 * 2**20
SUFFIX: Final = ".journal"
ASIDE: Final = ".refused"


class Segment:
    """One file of a journal. ``open``: how much was begun in it that is not done."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.open, self.full = path, 0, 0, False
        fresh = path.with_suffix(".new")  # it gets its name when it is locked: no process takes it for a dead one's
        self.file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        fresh.rename(path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.file)


class Journal:
    """The journal of one process, safe for its threads."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._most = folder, segment_bytes
        self._name, self._number = uuid7().hex, 0
        self._guard = threading.Lock()
        self._segment: Segment | None = None

    def begin(self, line: Mapping[str, Any]) -> Segment:
        """Writes a line of something that is ``done`` later. Hand back what is returned then."""
        with self._guard:
            segment = self._write(line)
            segment.open += 1
            return segment

    def note(self, line: Mapping[str, Any]) -> None:
        """Writes a line about something that was begun."""
        with self._guard:
            self._write(line)

    def done(self, segment: Segment) -> None:
        """The database has it."""
        with self._guard:
            segment.open -= 1
            if segment.full and not segment.open:
                segment.remove()

    def close(self) -> None:
        """Removes finished entries; the next process takes over the others."""
        with self._guard:
            segment, self._segment = self._segment, None
            if segment is not None:
                if segment.open:
                    os.close(segment.file)
                else:
                    segment.remove()

    def _write(self, line: Mapping[str, Any]) -> Segment:
        segment = self._segment
        if segment is None or segment.size >= self._most:
            if segment is not None:
                segment.full = True
                if not segment.open:
                    segment.remove()
            self._number += 1
            segment = self._segment = Segment(self._folder / f"{self._name}-{self._number:06d}{SUFFIX}")
        data = orjson.dumps(line) + b"\n"
        os.write(segment.file, data)
        segment.size += len(data)
        return segment


class Abandoned:
    """The segments of a process that is gone, held so that only one finishes its work."""

    def __init__(self, paths: list[Path], files: list[int]) -> None:
        self._paths, self._files = paths, files

    def lines(self) -> Iterator[dict[str, Any]]:
        """In the order in which they were written. A last line that was cut off says nothing."""
        for path in self._paths:
            for line in path.read_bytes().split(b"\n"):
                if line:
                    try:
                        yield orjson.loads(line)
                    except orjson.JSONDecodeError:
                        continue

    @property
    def name(self) -> str:
        return self._paths[0].name

    def remove(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Gives the files a name by which no process takes them up again; a person may look."""
        for path in self._paths:
            path.rename(path.with_suffix(ASIDE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)


def abandoned(folder: Path) -> Iterator[Abandoned]:
    """The journals in a folder whose processes are gone, one at a time; each is given to one who asks."""
    by_process: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        by_process.setdefault(path.name.partition("-")[0], []).append(path)
    for paths in by_process.values():
        files: list[int] = []
        with Abandoned(paths, files) as found:
            if all(_taken(path, files) for path in paths):
                yield found


def _taken(path: Path, files: list[int]) -> bool:
    """Whether the file could be locked: no process writes it, and no other reads it."""
    try:
        files.append(file := os.open(path, os.O_RDONLY))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return path.exists()
