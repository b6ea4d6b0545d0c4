"""Several beats: one asks for the tasks."""

from __future__ import annotations

import time
from unittest import mock

import pytest
from django.db import OperationalError

from agentcore_site.jobs.beat_lease import BeatLease

pytestmark = pytest.mark.django_db


def test_one_beat_holds_the_lease_and_another_beat_takes_over_the_lease_of_a_lost_one() -> None:
    first, second = (BeatLease(name, seconds=0.4, renewed=0.05) for name in ("a host", "b"))
    assert first.held() and not second.held()
    assert BeatLease("a host", seconds=0.4).held()  # restarted at the same place: nothing to wait for
    ends = time.monotonic() + 0.6
    while time.monotonic() < ends:  # the first goes on
        time.sleep(0.06)
        assert first.held() and not second.held()
    time.sleep(0.5)  # it stood still
    assert second.held() and not first.held()


def test_the_lease_keeps_its_state_while_the_database_is_away() -> None:
    first, second = (BeatLease(name, renewed=0) for name in "ab")
    assert first.held() and not second.held()
    with (
        mock.patch.object(BeatLease, "_take", side_effect=OperationalError("away")),
        mock.patch("agentcore_site.jobs.beat_lease.connection.close"),
    ):
        assert first.held() and not second.held()
