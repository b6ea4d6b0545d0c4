"""A lock outlasts its work, and a worker that was killed delays others for one lease only."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings

from agentcore_site.lib import exclusive_lock as module
from agentcore_site.lib.exclusive_lock import exclusive_lock
from agentcore_site.lib.redis_address import redis_client
from tests.support.workers import eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, broker: Any) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.3)
    monkeypatch.setattr(module, "RENEWED", 0.05)


def free(name: str) -> bool:
    with exclusive_lock(name) as mine:
        return mine


def test_work_that_lasts_longer_than_the_lease_keeps_its_lock(quick: None) -> None:
    with exclusive_lock("long") as mine:
        assert mine
        time.sleep(0.5)
        assert not free("long") and free("other")
    assert free("long")


def test_the_lock_of_a_worker_that_was_killed_is_free_after_its_lease(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_renew", lambda *killed: None)
    with exclusive_lock("killed"):
        eventually(lambda: free("killed"), seconds=5)


def test_a_lock_that_was_lost_does_not_take_another_workers(quick: None, caplog: pytest.LogCaptureFixture) -> None:
    with redis_client(settings.REDIS_URL) as client:
        with exclusive_lock("lost"):
            client.set("lock lost", "another worker", ex=5)
        assert client.get("lock lost") == b"another worker"
    assert "the lock lost was lost before its work ended" in caplog.text
