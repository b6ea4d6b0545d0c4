"""The writer of finished rollouts: its thread ends with its slice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.lifecycle import claim
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from experiences.trajectories.rollout_writer import RolloutWriter
from tests.support.rows import owner_of, queued_run, trajectory

pytestmark = pytest.mark.django_db(transaction=True)


class ClearedAsItCloses(threading.Event):
    """Is cleared just after the call to close: the one moment at which a waking could be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.clearing = threading.Event()
        self.may_clear = threading.Event()

    def clear(self) -> None:
        self.clearing.set()
        self.may_clear.wait(5)
        super().clear()


def test_a_writer_that_is_closed_while_its_thread_wakes_up_ends(operator: Actor, agent: Agent) -> None:
    """Once it did not: its job stood still for ever, with a lease that was renewed all the while."""
    run = queued_run(operator, agent)
    job: Any = claim(run.job_id)
    with Lease(job) as lease:
        writer = RolloutWriter(lease, agent.id, paid=False)
        arrived = ClearedAsItCloses()
        writer._arrived = arrived
        writer.store(owner_of(run), trajectory(1, 0, 0, "what is it?", True))
        assert arrived.clearing.wait(5)
        closing = threading.Thread(target=writer.close, daemon=True)
        closing.start()
        deadline = time.monotonic() + 5
        while not (writer._closed.is_set() and arrived.is_set()) and time.monotonic() < deadline:
            time.sleep(0.01)
        arrived.may_clear.set()
        closing.join(5)
        assert not closing.is_alive()
