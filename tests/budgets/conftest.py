"""Budgets that the tests of this folder share."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Job
from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.models import Organization
from budgets.ledger.accounts import Chain, chain_open
from tests.budgets.support import limits_set


@pytest.fixture
def job(acme: Organization, olivia: Any) -> Job:
    return Job.objects.create(organization=acme, kind="training", title="Router", created_by=olivia)


@pytest.fixture
def chain(job: Job, agent: Any) -> Chain:
    """Acme may spend $10 this month, the agent $5, the job $1."""
    chain = chain_open(job.organization_id, agent_id=agent.id, job_id=job.id)
    limits_set(chain, 10 * MICROS, 5 * MICROS, 1 * MICROS)
    return chain
