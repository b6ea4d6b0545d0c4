"""The file of an export in object storage: parts that are written once, and read from any place.

Where the organisation encrypts, a part is cut into blocks, each encrypted by AES-256-GCM under its data key with a
nonce of its own: a block opens in its place of this part of this export alone, so that a download can begin anywhere.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from cryptography.exceptions import InvalidTag

from agentcore_site.encryption.envelope import NONCE_BYTES, OpenKey
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.key_errors import Unopenable
from agentcore_site.lib.object_storage import object_open

BLOCK: Final = 2**20
ADDED: Final = NONCE_BYTES + 16  # bytes that encryption adds to a block: nonce and tag
GONE: Final = "The file of this export is not in the object storage any more."
TAR: Final = 512  # bytes of a header, and what contents are filled up to


class PartFile:
    """A part that is being written, in a file of this machine. ``sha256`` and ``size`` are of what was given."""

    def __init__(self, path: Path, key: OpenKey | None, place: str) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        self._file = path.open("wb")
        self._key, self._place = key, place
        self._waiting = bytearray()
        self._blocks = 0

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None and self._waiting:
            self._seal(bytes(self._waiting))
        self._file.close()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        if self._key is None:
            self._file.write(data)
            return
        self._waiting += data
        while len(self._waiting) >= BLOCK:
            self._seal(bytes(self._waiting[:BLOCK]))
            del self._waiting[:BLOCK]

    def _seal(self, block: bytes) -> None:
        assert self._key is not None
        nonce = os.urandom(NONCE_BYTES)
        about = _about(self._key, self._place, self._blocks)
        self._file.write(nonce + self._key.cipher.encrypt(nonce, block, about))
        self._blocks += 1


def place_of_part(organization_id: uuid.UUID, export_id: uuid.UUID, number: int) -> str:
    """The name to which an encrypted part is bound."""
    return f"exports/{organization_id}/{export_id}/{number}"


def _about(key: OpenKey, place: str, block: int) -> bytes:
    return f"{key.version}/{place}/{block}".encode()


@dataclass(frozen=True)
class StoredPart:
    """A part as it is read. ``size``: of what is inside."""

    path: str
    size: int
    key: OpenKey | None
    place: str

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Raises:
        Missing: the file is gone.
        ObjectsUnavailable: the storage can't be asked.
        Unopenable: it was altered, or moved here from elsewhere."""
        try:
            with object_open(self.path) as stored:
                for number in range(start // BLOCK, -(-stop // BLOCK)):
                    first = number * BLOCK
                    block = self._block(stored, number, min(BLOCK, self.size - first))
                    yield block[max(0, start - first) : stop - first]
        except FileNotFoundError as error:
            raise Missing(GONE) from error

    def _block(self, file: IO[bytes], number: int, size: int) -> bytes:
        if self.key is None:
            file.seek(number * BLOCK)
            return bytes(file.read(size))
        file.seek(number * (BLOCK + ADDED))
        sealed = file.read(size + ADDED)
        try:
            return self.key.cipher.decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _about(self.key, self.place, number)
            )
        except (InvalidTag, ValueError):
            raise Unopenable(
                f"A part of an export ({self.place}) was altered, or moved here from another one."
            ) from None


@dataclass(frozen=True)
class FileSegment:
    """A stretch of a download."""

    size: int
    read: Callable[[int, int], Iterator[bytes]]


def segments_joined(parts: Sequence[StoredPart]) -> list[FileSegment]:
    """Parts behind each other."""
    return [FileSegment(part.size, part.read) for part in parts]


def segments_tarred(parts: Sequence[StoredPart], name: str) -> list[FileSegment]:
    """Parts as files of a tar archive, which is the same each time, so that a download of it can be resumed."""
    found: list[FileSegment] = []
    stem, _, ending = name.rpartition(".")
    for number, part in enumerate(parts, 1):
        info = tarfile.TarInfo(f"{stem}-{number:05}.{ending}")
        info.size = part.size
        found += [_bytes(info.tobuf()), FileSegment(part.size, part.read), _bytes(bytes(-part.size % TAR))]
    return [*found, _bytes(bytes(2 * TAR))]


def _bytes(data: bytes) -> FileSegment:
    def read(start: int, stop: int) -> Iterator[bytes]:
        yield data[start:stop]

    return FileSegment(len(data), read)


def read_between(segments: Sequence[FileSegment], start: int, stop: int) -> Iterator[bytes]:
    """The bytes from ``start`` to before ``stop`` of all segments behind each other."""
    at = 0
    for segment in segments:
        first, last = max(start - at, 0), min(stop - at, segment.size)
        if first < last:
            yield from segment.read(first, last)
        at += segment.size
