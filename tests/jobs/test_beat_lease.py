"""Several beats: one asks for the tasks."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
from celery.beat import ScheduleEntry
from django.db import OperationalError

from agentcore_site import health
from agentcore_site.celery import app
from agentcore_site.jobs.beat_lease import BeatLease, LeasedScheduler

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


def test_beat_goes_on_when_its_clock_goes_back_or_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed := random.randrange(10**6))
    print("seed", seed)
    true_now, jump = app.now, timedelta()
    monkeypatch.setattr(ScheduleEntry, "default_now", lambda entry: true_now() + jump)
    monkeypatch.setattr(app, "now", lambda: true_now() + jump)
    scheduler = LeasedScheduler(app, schedule_filename=str(tmp_path / "beat"), lazy=True)
    sent: list[str] = []
    monkeypatch.setattr(scheduler, "apply_async", lambda entry, **_: sent.append(entry.task))
    scheduler.setup_schedule()
    scheduler.schedule.clear()
    scheduler.update_from_dict({"often": {"task": "often", "schedule": 0.05}})
    for days in [*(draw.uniform(-1, 1) for _ in range(8)), -1, 1]:
        jump, before, ends = jump + timedelta(days=days), len(sent), time.monotonic() + 5
        while time.monotonic() < ends and sent[before:].count("often") < 2:
            time.sleep(min(max(scheduler.tick(), 0.0), 0.02))
        assert sent[before:].count("often") >= 2, f"after a jump of {days:+.1f} days"
    scheduler.close()


@pytest.mark.parametrize(("off", "said"), [(86_400, "86,400 s ahead of"), (-20, "20 s behind"), (0, "")])
def test_health_names_a_clock_that_differs_from_the_databases(
    off: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("agentcore_site.health.time.time", lambda: now() + off)
    found = health.database()
    assert (found.status == health.DEGRADED) == bool(said) and said in found.detail
