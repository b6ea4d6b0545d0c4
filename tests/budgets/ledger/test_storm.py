"""The property that the ledger is for: spent + reserved is never above a limit."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Job
from budgets.ledger.accounts import chain_open, owners
from budgets.services import limit_change
from tests.budgets.storm import storm
from tests.support.rounds import rounds

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rounds]

ROUNDS = rounds(25, 100)  # the bench runs 1,000


def test_64_spenders_that_are_killed_at_random_never_overspend(job: Job, agent: Any) -> None:
    home = job.organization_id
    chains = [
        chain_open(home), chain_open(home, agent_id=agent.id), chain_open(home, agent_id=agent.id, job_id=job.id)
    ]  # fmt: skip
    three = owners(home, agent.id, job.id)
    for owner, limit in zip(three, [150_000, 100_000, 40_000], strict=True):
        limit_change(None, owner, limit)

    report = storm(chains, three, rounds=ROUNDS)

    assert report.errors == ""
    assert report.wrong == []
    assert report.left_reserved == 0, report
    assert report.differences == []
    assert report.billed <= report.spent, report
    assert report.rounds >= ROUNDS and report.was_one, report
