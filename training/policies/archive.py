"""State as bytes: arrays and JSON scalars in one compressed ``.npz``, without pickle.

Equal state gives equal bytes (fixed time stamps, fixed order), so that checkpoints can be compared by hash.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

_SCALARS = "scalars.json"
_STAMP = (1980, 1, 1, 0, 0, 0)


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


def unpack(data: bytes) -> dict[str, Any]:
    """What ``pack`` was given, bit for bit.

    Raises:
        CorruptState: the bytes are truncated or of another kind.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            state: dict[str, Any] = json.loads(archive.read(_SCALARS))
            for name in archive.namelist():
                if name != _SCALARS:
                    array = np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                    state[name.removesuffix(".npy")] = array
            return state
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise CorruptState(f"The stored state can't be read: {error}") from error


def nested(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping with ``prefix/`` before each key, to join several states in one."""
    return {f"{prefix}/{key}": value for key, value in state.items()}


def under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a joined state that was nested under ``prefix``."""
    return {key.removeprefix(f"{prefix}/"): value for key, value in state.items() if key.startswith(f"{prefix}/")}


def _array_bytes(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _STAMP), data, zipfile.ZIP_DEFLATED, compresslevel=6)
