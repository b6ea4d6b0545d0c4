"""State as bytes: arrays and JSON scalars in one compressed ``.npz``, without pickle.

Equal state gives equal bytes (fixed time stamps, fixed order), so that checkpoints can be compared by hash.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np

from agentcore_site.lib.json_values import most_values

_SCALARS = "scalars.json"
_STAMP = (1980, 1, 1, 0, 0, 0)
MOST_UNPACKED: Final = 2**30  # bytes: a few kilobytes of zip can say that they unpack to petabytes
MOST_SCALARS: Final = 16 * 2**20  # bytes of JSON
MOST_VALUES: Final = 1_000_000  # of that JSON
PIECE: Final = 2**18
_HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class CorruptState(ValueError):
    """The bytes are not a state that this project wrote."""


def pack(state: Mapping[str, Any]) -> bytes:
    """A flat mapping of arrays and JSON values as bytes.

    Raises:
        TypeError: a value is neither an array of numbers nor representable in JSON.
    """
    buffer = io.BytesIO()
    scalars = {key: value for key, value in state.items() if not isinstance(value, np.ndarray)}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        _write(archive, _SCALARS, json.dumps(scalars, sort_keys=True, separators=(",", ":")).encode())
        for key in sorted(state.keys() - scalars.keys()):
            _write(archive, f"{key}.npy", _array_bytes(state[key]))
    return buffer.getvalue()


def unpack(data: bytes, *, most: int | None = None) -> dict[str, Any]:
    """Restores the values given to ``pack``, bit for bit. Nothing in the bytes is executed, and no more memory is
    allocated than they hold. For bytes of a stranger ``most`` is given: they unpack to at most so many bytes, and their
    scalars are bounded too.

    Raises:
        CorruptState: the bytes are truncated or of another kind.
    """
    try:
        if not data.startswith(b"PK"):
            raise ValueError("it is no archive")  # a zip at the end of something else is one to the library
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            limit = MOST_UNPACKED if most is None else most
            if sum(member.file_size for member in members) > limit:
                raise ValueError(f"it unpacks to more than {limit >> 20} MB")
            state = _scalars(archive, bounded=most is not None)
            for member in members:
                if member.filename != _SCALARS:
                    state[member.filename.removesuffix(".npy")] = _array(archive, member)
            return state
    except _UNREADABLE as error:
        raise CorruptState(f"The stored state can't be read: {error}") from error


def nested(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping with ``prefix/`` before each key, to join several states in one."""
    return {f"{prefix}/{key}": value for key, value in state.items()}


def under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a joined state that was nested under ``prefix``."""
    return {key.removeprefix(f"{prefix}/"): value for key, value in state.items() if key.startswith(f"{prefix}/")}


# RuntimeError: encrypted, packed in another way, or nested without end.
_UNREADABLE: Final = (
    zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, OSError, RuntimeError
)  # fmt: skip


def _opened(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """The member, to be read in pieces and no further than to the size that the archive names: ``ZipFile.read`` unpacks
    all of it. Its end is where the size and the checksum are compared.

    Raises:
        ValueError: it is packed by a method of which a few bytes unpack to gigabytes at once.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is packed by method {member.compress_type}")
    return archive.open(member)


def _scalars(archive: zipfile.ZipFile, *, bounded: bool) -> dict[str, Any]:
    """Raises:
    ValueError: they are no object of JSON, or more than a state of ours has."""
    member = archive.getinfo(_SCALARS)
    if bounded and member.file_size > MOST_SCALARS:
        raise ValueError(f"{_SCALARS} has more than {MOST_SCALARS >> 20} MB")
    with _opened(archive, member) as stream:
        text = stream.read(member.file_size + 1)
    if bounded and most_values(text) > MOST_VALUES:
        raise ValueError(f"{_SCALARS} has more than {MOST_VALUES:,} values")
    return dict(json.loads(text))


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray[Any, np.dtype[Any]]:
    """Reads the member into its array, without a copy beside it.

    Raises:
        ValueError: it holds other than numbers, or its header promises another number of them than there is.
        zipfile.BadZipFile: it has another size or another checksum than the archive says.
    """
    with _opened(archive, member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"an array of format {version}")
        shape, by_column, dtype = _HEADERS[version](stream)
        left = member.file_size - stream.tell()
        if dtype.kind not in "biuf" or math.prod(shape) * dtype.itemsize != left:
            raise ValueError(f"an array of {dtype} with shape {shape} in {member.file_size} bytes")
        flat = np.empty(math.prod(shape), dtype)
        room, at = flat.view(np.uint8), 0
        while piece := stream.read(PIECE):
            room[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        if at != left:
            raise ValueError(f"{member.filename} ends after {at} of {left} bytes")
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)


def _array_bytes(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _STAMP), data, zipfile.ZIP_DEFLATED, compresslevel=6)
