"""State as bytes: what goes in comes out, bit for bit, and nothing else is accepted."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from training.policies.archive import MOST_SCALARS, MOST_UNPACKED, PIECE, CorruptState, nested, pack, under, unpack

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
    result = unpack(pack(STATE))
    assert result.keys() == STATE.keys()
    for key, value in STATE.items():
        if isinstance(value, np.ndarray):
            assert result[key].dtype == value.dtype
            assert result[key].tobytes() == value.tobytes()
            assert result[key].shape == value.shape
        else:
            assert result[key] == value


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
    assert peak_of_refusal(data) < 1_000_000 + len(data)


def peak_of_refusal(data: bytes, most: int = MOST_UNPACKED) -> int:
    """Bytes of memory that reading takes at most, of a state that is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptState, match="can't be read"):
            unpack(data, most=most)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


@pytest.mark.parametrize("scalars", [b'{"a": [' + b"[]," * 10**6 + b"[]]}", b'{"a": "' + b"x" * (40 << 20) + b'"}'])
def test_scalars_take_no_more_memory_than_a_state_of_ours_has(scalars: bytes) -> None:
    assert peak_of_refusal(zipped(scalars__json=scalars)) < 2 * MOST_SCALARS


def test_a_state_unpacks_to_no_more_than_is_allowed_and_once() -> None:
    state = {
        "a": np.zeros(1_000_000),
        "b": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "c": np.arange(3, dtype=">i2"),
    }
    data = pack(state)
    assert peak_of_refusal(data, most=4_000_000) < 1_000_000
    tracemalloc.start()
    try:
        result = unpack(data, most=9_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000 + 4 * PIECE + len(data)  # the array, and pieces of it
    for name, value in state.items():
        assert (
            np.array_equal(result[name], value) and result[name].dtype == value.dtype and result[name].flags.writeable
        )


def test_states_can_be_joined_and_taken_apart() -> None:
    joined = nested("policy", {"w": 1}) | nested("policy_old", {"w": 2})
    assert under("policy", joined) == {"w": 1}
