"""State as bytes: what goes in comes out, bit for bit, and nothing else is accepted."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from training.policies.archive import CorruptState, nested, pack, under, unpack

STATE = {
    "iteration": 7,
    "best": float("-inf"),
    "name": "späte Ernte",
    "options": {"bits": 13, "deep": [1, None, True]},
    "weights": np.random.default_rng(0).normal(size=(5, 3)),
    "ids": np.array([3, 1, 2], dtype=np.int32),
    "tiny": np.array([5e-324, -0.0, np.nan]),
    "nothing": np.zeros((0, 3)),
}


def test_state_comes_back_bit_for_bit() -> None:
    found = unpack(pack(STATE))
    assert found.keys() == STATE.keys()
    for key, value in STATE.items():
        if isinstance(value, np.ndarray):
            assert found[key].dtype == value.dtype
            assert found[key].tobytes() == value.tobytes()
            assert found[key].shape == value.shape
        else:
            assert found[key] == value


def test_equal_states_have_equal_bytes_in_any_order() -> None:
    assert pack(STATE) == pack(dict(reversed(STATE.items())))


def test_archive_never_reads_pickles() -> None:
    with pytest.raises(CorruptState):
        unpack(pickle.dumps(STATE))
    with pytest.raises(ValueError, match="Object arrays"):
        pack({"evil": np.array([object()])})


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"PK" + b[9:]])
def test_archive_says_so_when_bytes_are_damaged(damage: object) -> None:
    with pytest.raises(CorruptState, match="can't be read"):
        unpack(damage(pack(STATE)))  # type: ignore[operator]


METHODS = {"stored": 0, "deflated": 8, "bzip2": 12, "lzma": 14}


def bomb(method: int, *, says: int, holds: int) -> bytes:
    """A state with a member of ``holds`` zeros, of which the archive says that there are ``says``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("scalars.json", b"{}")
        archive.writestr("weights.npy", bytes(holds), compress_type=method)
    data = buffer.getvalue()
    for header, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # of the member, and in the directory
        start = data.rindex(header) + at
        assert data[start : start + 4] == holds.to_bytes(4, "little")
        data = data[:start] + says.to_bytes(4, "little") + data[start + 4 :]
    return data


@pytest.mark.parametrize("says", [100, 40_000_000])
@pytest.mark.parametrize("method", METHODS)
def test_a_member_is_unpacked_no_further_than_the_archive_says(method: str, says: int) -> None:
    data = bomb(METHODS[method], says=says, holds=40_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptState, match="can't be read"):
            unpack(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A member of an honest size is unpacked, and then is no array.
    assert peak < (1_000_000 + len(data) if says == 100 or method in ("bzip2", "lzma") else 2.2 * says)


def test_states_can_be_joined_and_taken_apart() -> None:
    joined = nested("policy", {"w": 1}) | nested("policy_old", {"w": 2})
    assert under("policy", joined) == {"w": 1}
