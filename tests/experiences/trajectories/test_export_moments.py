"""Times of steps as an export writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from experiences.trajectories.exports import rows


@given(st.one_of(st.floats(-1e10, 2e11), st.floats(0, 2e9).map(lambda one: round(one, 3)), st.integers(0, 2**33)))
def test_moments_are_written_as_isoformat_writes_them(seconds: float) -> None:
    assert rows._moment(float(seconds)) == datetime.fromtimestamp(float(seconds), UTC).isoformat()
